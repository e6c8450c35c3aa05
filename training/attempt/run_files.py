"""The run folder, a versioned contract: files written around the loop and read by every room."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import time
from pathlib import Path
from typing import Any

from conf import Config
from conf.composing.run_identity import run_name
from experiment_utils import atomic_files, lease
from experiment_utils.errors import UserError
from experiment_utils.run_folder import ABSENT, DAMAGED, WHOLE, RunFolder, read_file

log = logging.getLogger("training")

RUN_FOLDER_VERSION = 1
LOCK = "run.lock"
"""The lease of the process that runs in the folder (`experiment_utils.lease`)."""
STALLED_AFTER_S = 300.0
"""A heartbeat comes at each stage and every 5 s between; an evaluation may take minutes."""


def run_folder(config: Config, run_identity: str) -> Path:
    """Folder of the run of this identity: runs_dir / study / name."""
    return Path(config.runs_dir) / (config.study.name or "default") / run_name(config, run_identity)


def run_lock(folder: Path) -> Any:
    """Hold the run folder within a `with` block; raises LockHeld with the holder."""
    return lease.hold(folder / LOCK, f"the run folder {folder}")


def read_config(folder: Path) -> dict[str, Any]:
    """The run's resolved config as plain values.

    Raises:
        UserError: it was damaged, is gone or cannot be read.
    """
    found = read_file(folder / "config.yaml").readable()
    if found.state != WHOLE:
        why = " ".join(found.why.split())
        raise UserError(
            f"{found.path} cannot be read: {why}. The command that the run was started or submitted with, "
            "typed again, writes it again",
            code="config-unreadable",
        )
    return found.value


def read_status(folder: Path) -> dict[str, Any]:
    """The run's status.json; empty if it does not exist yet or was damaged: the run writes it again.

    Raises:
        UserError: it is there and cannot be read.
    """
    found = read_file(folder / "status.json").readable()
    return found.value if found.state == WHOLE else {}


def state_of(folder: Path) -> str | None:
    """State of a run; None before its first attempt, `failed` if its process ended without writing one."""
    state = read_status(folder).get("state")
    if state != "running":
        return state
    holder = RunFolder(folder).holder
    gone = holder.is_gone() if holder is not None else not (folder / LOCK).exists()
    return "failed" if gone else state


def read_run(folder: Path) -> dict[str, Any]:
    """The run's run.json; empty when it has none yet.

    Raises:
        UserError: it was damaged, or cannot be read.
    """
    found = read_file(folder / "run.json").readable()
    kinds = {"attempts": list, "auto": dict, "results": dict}
    wrong = (key for key, kind in kinds.items() if not isinstance(found.value.get(key) or kind(), kind))
    why = next((f"{key} is {found.value[key]!r}" for key in wrong), found.why)
    if why and found.state != ABSENT:
        path = found.path
        aside = shlex.join(["mv", str(path), f"{path}.damaged"])
        raise UserError(
            f"{path} was damaged ({why}). The checkpoints in the same folder are intact. Move it aside: "
            f"{aside} and type the command again: the run resumes from its newest checkpoint and writes the "
            "file again. Only the record of its earlier attempts is lost; every `auto` is settled again",
            code="run-json-damaged",
        )
    return found.value


def next_attempt(folder: Path) -> int:
    """Number of the attempt that begins next, from 1.

    Raises:
        UserError: run.json was damaged, or cannot be read.
    """
    return len(read_run(folder).get("attempts", [])) + 1


def record_attempt(
    folder: Path,
    plan: dict[str, Any],
    auto: dict[str, Any],
    implementation: dict[str, str],
    provenance: dict[str, Any],
    *,
    ranks: int = 1,
    ensemble: dict[str, Any] | None = None,
    metrics: dict[str, Any] | None = None,
) -> None:
    """Record in run.json that an attempt begins: its plan, choices, code and versions.

    ensemble: the runs that it is trained together with. metrics: those of the user's, by name.
    """
    run = read_run(folder)
    training = plan["config"]["training"]
    attempts = run.get("attempts", [])
    attempts.append(
        {
            "attempt": len(attempts) + 1,
            "started_s": round(time.time(), 3),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cwd": str(Path.cwd()),
            **({"again": True} if run.get("again") else {}),
            **provenance,
            "how": {
                **{
                    key: training[key] for key in ("activation_checkpointing", "checkpoint_every", "parallel")
                },
                "ranks": ranks,
                **auto,
                **({"together": ensemble["together"]} if ensemble else {}),
            },
        }
    )
    fields_of_plan = {key: value for key, value in plan.items() if key not in ("state", "folder", "needs")}
    atomic_files.write_json(
        folder / "run.json",
        {
            "version": RUN_FOLDER_VERSION,
            **fields_of_plan,
            "restored": run.get("restored") or fields_of_plan.get("restored"),  # with what matched
            "auto": auto,
            "implementation": implementation,
            "results": run.get("results"),
            **({"ensemble": ensemble} if ensemble else {}),
            **({"metrics": metrics} if metrics else {}),
            "attempts": attempts,
        },
    )


def update_attempt(folder: Path, **changes: Any) -> None:
    """Add facts to the attempt that is running."""
    run = read_run(folder)
    run["attempts"][-1].update(changes)
    atomic_files.write_json(folder / "run.json", run)


def update_run(folder: Path, **changes: Any) -> None:
    """Add facts to run.json."""
    atomic_files.write_json(folder / "run.json", {**read_run(folder), **changes})


def job_ids() -> dict[str, str]:
    """Slurm's variables that identify this start of a job; empty outside of one."""
    names = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")
    return {name: os.environ[name] for name in names if name in os.environ}


class Status:
    """status.json, written by the run alone: state, stage, step, attempt, job_ids, heartbeat, reason.

    is_written: False for ranks other than the first, which write nothing.
    """

    def __init__(
        self, folder: Path, attempt: int, total_steps: int | None = None, *, is_written: bool = True
    ) -> None:
        self.attempt = attempt
        self._is_written = is_written
        self._path = folder / "status.json"
        found = read_file(self._path).readable()
        if found.state == DAMAGED:
            log.warning("%s was damaged (%s) and is written again", self._path, found.why)
        self._fields: dict[str, Any] = {
            "version": RUN_FOLDER_VERSION,
            "state": "running",
            "stage": None,
            "step": None,
            "total_steps": total_steps,
            "attempt": attempt,
            "job_ids": job_ids(),
            "heartbeat_s": 0.0,
            "reason": None,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }

    def update(self, **changes: Any) -> None:
        """Write the changed fields and a fresh heartbeat (Unix seconds)."""
        self._fields.update(changes, heartbeat_s=round(time.time(), 3))
        if self._is_written:
            atomic_files.write_json(self._path, self._fields)

    def beat(self, every_s: float = 5.0, **changes: Any) -> None:
        """`update` if the last heartbeat is older than `every_s` seconds.

        Otherwise the changes are written with the next update, also that of a run that fails in between.
        """
        self._fields.update(changes)
        if time.time() - self._fields["heartbeat_s"] >= every_s:
            self.update()
