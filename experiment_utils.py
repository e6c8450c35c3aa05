"""What every run needs around the loop: its budget, identity, seeds and folder."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import socket
import time
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import durable
from conf import AUTO, Config, Problem, UserError
from conf.differences import varying
from conf.quantities import counted, format_count
from conf.schema import DEFAULT_EFFECTIVE_BATCH, Training, name_of
from conf.sizes import size_name

log = logging.getLogger("experiment_utils")

RUN_FOLDER_VERSION = 1
AUTO_MICRO_BATCH_TOKENS = 16_384
STALLED_AFTER_S = 300.0
"""A heartbeat comes at each stage and every 5 s between; an evaluation may take minutes."""

WHERE_IT_RUNS = (
    "hydra", "plan", "wait", "then", "notify", "study", "runs_dir", "tags", "notes", "slurm", "memory",
    "logging", "ensemble",
)  # fmt: skip
"""Keys that do not change what a run computes: not in its identity."""

HOW_IT_IS_COMPUTED = (
    "training.micro_batch", "training.activation_checkpointing", "training.loss_chunk",
    "training.threads", "training.parallel", "dataset.num_workers", "dataset.reader", "dataset.max_resident",
    "dataset.verify", "dataset.auto_tokenize", "training.checkpoint_every", "training.keep_checkpoints",
    "training.milestones", "training.dead_units", "training.checkpoint_writing", "training.profile",
    "training.max_time", "dataset.cache", "dataset.disk_budget", "dataset.download_workers",
    "dataset.part_size",
)  # fmt: skip
"""Keys that may change between two attempts of one run: not in its identity, recorded by attempt.

Losses are bit for bit the same while they stay the same.
"""

REPLACED_BY_FINGERPRINT = (
    "dataset.name", "dataset.source", "dataset.sources", "dataset.path", "dataset.val_path", "dataset.dtype",
    "dataset.document_separator", "dataset.encoding", "dataset.errors", "dataset.default_max_tokens",
    "tokenizer", "restore.from", "restore.step",
)  # fmt: skip
"""Keys that say where data lie and how they were made; the identity holds fingerprints of data
and checkpoint."""

TOLD_BESIDE = (
    "optimizer.lr", "seed", "seed_init", "seed_data", "training.max_tokens", "training.max_steps",
    "training.tokens_per_param",
)  # fmt: skip
"""Keys that a run's name tells, or the column of tokens in every table of runs."""

_NOT_IN_IDENTITY = (*WHERE_IT_RUNS, *HOW_IT_IS_COMPUTED, *REPLACED_BY_FINGERPRINT)


@dataclass(frozen=True)
class Budget:
    """How much a run reads, and in which portions.

    tokens = steps * batch_tokens; batch_tokens = effective_batch * seq_len;
    effective_batch = micro_batch * accumulation * ranks (windows).
    """

    steps: int
    tokens: int
    effective_batch: int
    batch_tokens: int
    micro_batch: int
    accumulation: int
    epochs: float
    ranks: int = 1


def effective_batch(training: Training) -> int:
    """Windows in an optimizer step, from whichever of its two keys is given."""
    if training.batch_tokens is not None:
        return training.batch_tokens // training.seq_len
    return training.effective_batch or DEFAULT_EFFECTIVE_BATCH


def batch_of_rank(training: Training, ranks: int) -> int:
    """Windows of an optimizer step that each rank reads.

    Raises:
        UserError: a step does not divide over so many; tells the choices.
    """
    batch = effective_batch(training)
    if batch % ranks == 0:
        return batch // ranks
    fitting = [str(count) for count in range(1, batch + 1) if batch % count == 0 and count <= 2 * ranks]
    below = batch // ranks * ranks
    batches = " or ".join(str(size) for size in (below, below + ranks) if size)
    raise UserError(
        Problem(
            "training.effective_batch",
            f"a step of {counted(batch, 'window')} does not divide over {ranks} ranks. Start the run on "
            f"{', '.join(fitting)} of them; or set training.effective_batch={batches}, which is another run",
        )
    )


def micro_batch(training: Training, ranks: int = 1) -> int:
    """Windows at once on the device; `auto`: most that divide the step of a rank, up to 16,384 tokens.

    Raises:
        UserError: the step of each rank is no whole number of them.
    """
    batch = batch_of_rank(training, ranks)
    if training.micro_batch == AUTO:
        at_most = max(1, AUTO_MICRO_BATCH_TOKENS // training.seq_len)
        return max(size for size in range(1, batch + 1) if batch % size == 0 and size <= at_most)
    size = int(training.micro_batch)
    if ranks > 1 and batch % size:
        fitting = [str(size) for size in range(1, batch + 1) if batch % size == 0]
        raise UserError(
            Problem(
                "training.micro_batch",
                f"each of {ranks} ranks reads {counted(batch, 'window')} of a step, no whole number of "
                f"micro-batches of {size}. Choices: {', '.join(fitting)}, or {AUTO}",
            )
        )
    return size


def resolve_budget(
    training: Training,
    *,
    parameters: int,
    train_windows: int,
    repeat: bool,
    default_max_tokens: int,
    micro: int | None = None,
    what: str = "the train split",
    to_repeat: str = "dataset.repeat=true",
    ranks: int = 1,
) -> Budget:
    """Turn whichever budget key is given into steps.

    Steps are rounded up: a run never reads less than was asked for. Without any key the budget is
    `default_max_tokens`, or one epoch where the data are fewer. micro: the micro-batch, where it was
    settled in view of the memory. what, to_repeat: for messages: what the windows are of, and how to read
    more than an epoch. ranks: processes that share each step.

    Raises:
        UserError: when the data hold fewer windows than the budget needs and `repeat` is false.
    """
    batch = effective_batch(training)
    batch_tokens = batch * training.seq_len
    steps_in_epoch = train_windows // batch
    if training.max_steps is not None:
        where, steps = "training.max_steps", training.max_steps
    elif training.max_tokens is not None:
        where, steps = "training.max_tokens", -(-training.max_tokens // batch_tokens)
    elif training.tokens_per_param is not None:
        where = "training.tokens_per_param"
        steps = -(-round(training.tokens_per_param * parameters) // batch_tokens)
    else:
        where, steps = "dataset.default_max_tokens", -(-default_max_tokens // batch_tokens)
        if not repeat:
            steps = max(1, min(steps, steps_in_epoch))
    if steps > steps_in_epoch and not repeat:
        raise UserError(
            Problem(
                where,
                f"asks for {format_count(steps * batch_tokens)} tokens ({counted(steps, 'step')} of "
                f"{counted(batch, 'window')}), but {what} has {counted(train_windows, 'window')} of "
                f"{training.seq_len}: one epoch is {format_count(steps_in_epoch * batch_tokens)} tokens "
                f"({counted(steps_in_epoch, 'step')}). Set training.max_steps={max(1, steps_in_epoch)}, or "
                f"read the data more than once with {to_repeat}",
            )
            if steps_in_epoch > 0
            else Problem(
                "training.batch_tokens" if training.batch_tokens is not None else "training.effective_batch",
                f"one step needs {counted(batch, 'window')} of {training.seq_len} tokens, but {what} has "
                f"{train_windows:,}. Set training.effective_batch={max(1, train_windows)} or less, or "
                f"{to_repeat}",
            )
        )
    micro = micro or micro_batch(training, ranks)
    return Budget(
        steps=steps,
        tokens=steps * batch_tokens,
        effective_batch=batch,
        batch_tokens=batch_tokens,
        micro_batch=micro,
        accumulation=batch // (micro * ranks),
        epochs=steps * batch / train_windows if train_windows else 0.0,
        ranks=ranks,
    )


def milestones(steps: int, count: int, spacing: str) -> list[int]:
    """The steps after which to evaluate: at most `count`, ascending, the last one is `steps`.

    spacing: `linear`, or `log`: equal ratios from step 1 on.
    """
    if spacing == "log":
        wanted = [steps ** (i / (count - 1)) if count > 1 else steps for i in range(count)]
    else:
        wanted = [steps * (i + 1) / count for i in range(count)]
    return sorted({min(steps, max(1, round(step))) for step in wanted} | {steps})


def identity(config: Config, data_fingerprint: str, restored: str | None = None) -> str:
    """Name of what a run computes: SHA-256 (hex) of the resolved config less where and how, and of the data.

    restored: fingerprint of the checkpoint that it begins with, if it does.

    A key with `as_before` in its schema is left out at that value, so that runs made before the key
    existed keep their identity.
    """
    described = {"config": _hashed(config, ""), "data": data_fingerprint}
    if restored is not None:
        described["restored"] = restored
    text = json.dumps(described, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_in_identity(path: str) -> bool:
    """Whether another value of the key makes another run."""
    return path not in _NOT_IN_IDENTITY and path.partition(".")[0] not in _NOT_IN_IDENTITY


def _hashed(node: Any, path: str) -> Any:
    if not is_dataclass(node):
        return node
    kept = {}
    for key in fields(node):
        name = name_of(key.name)
        key_path = f"{path}.{name}" if path else name
        value = getattr(node, key.name)
        as_before = key.metadata.get("as_before", MISSING)
        if not is_in_identity(key_path) or (as_before is not MISSING and value == as_before):
            continue
        hashed = _hashed(value, key_path)
        if hashed or not is_dataclass(value):  # a group that is as before, in all of its keys
            kept[name] = hashed
    return kept


def run_name(config: Config, run_identity: str) -> str:
    """A name a person can read: `32d-lr0.003-seed1-1a2b3c4d`, and `seed1-data7` where seeds are set apart."""
    init, data = seeds(config)
    apart = f"-data{data}" if data != init else ""
    return f"{size_name(config.model)}-lr{config.optimizer.lr:g}-seed{init}{apart}-{run_identity[:8]}"


def varying_settings(configs: Sequence[Config]) -> dict[str, list[str]]:
    """Columns (title to a value for each config) that tell runs apart where their names do not."""
    left_out = (*WHERE_IT_RUNS, *HOW_IT_IS_COMPUTED, *TOLD_BESIDE)
    begins = {(one.restore.from_, one.restore.what, one.restore.step) for one in configs}
    if len(begins) == len({begins_from for begins_from, _, _ in begins}):  # which says the rest
        left_out = (*left_out, "restore.what", "restore.step")
    return varying(configs, lambda path: not {path, path.partition(".")[0]} & {*left_out})


def run_folder(config: Config, run_identity: str) -> Path:
    """Where the run of this identity lies: runs_dir / study / name."""
    return Path(config.runs_dir) / (config.study.name or "default") / run_name(config, run_identity)


def create_run(config: Config, run_identity: str) -> Path:
    """Make the run's folder and write the resolved config into it. Safe to call again.

    A finished run is left as it is. Keys of the second tuple (`HOW_IT_IS_COMPUTED`) may have changed
    since the last attempt: the new ones are written.

    Raises:
        LockHeld: when a process is running in this folder.
        UserError: when the folder cannot be written.
    """
    from conf.check import to_config, to_yaml

    folder = run_folder(config, run_identity)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if read_status(folder).get("state") == "done":
            return folder
        with run_lock(folder):
            durable.write_text(folder / "config.yaml", to_yaml(config))
    except OSError as error:
        raise UserError(
            Problem(
                "runs_dir", f"cannot write {folder}: {error.strerror}. Choose another place with runs_dir="
            )
        ) from error
    if to_config(read_config(folder)) != config:
        raise AssertionError(f"{folder / 'config.yaml'} does not read back as the config that was written")
    return folder


def run_lock(folder: Path) -> Any:
    """Hold the run folder for the length of a `with` block; raises LockHeld with the holder."""
    return durable.lock(folder / "run.lock", f"the run folder {folder}")


def read_config(folder: Path) -> dict[str, Any]:
    """The run's resolved config as plain values."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # five times as fast
    return yaml.load((folder / "config.yaml").read_text(encoding="utf-8"), Loader=loader)


def read_status(folder: Path) -> dict[str, Any]:
    """The run's status.json; empty when it has none yet, or one that was damaged: the run writes it anew.

    Raises:
        UserError: it is there and cannot be read.
    """
    try:
        return _read_json(folder / "status.json")
    except ValueError:
        return {}


def state_of(folder: Path) -> str | None:
    """The state of a run, None before its first attempt; `failed` where its process is gone unheard."""
    state = read_status(folder).get("state")
    if state != "running":
        return state
    holder = holder_of(folder)
    gone = holder.is_gone() if holder is not None else not (folder / "run.lock").exists()
    return "failed" if gone else state


def holder_of(folder: Path) -> durable.Holder | None:
    """The process that runs in the folder, here or elsewhere; None: none. A damaged lock tells nothing."""
    try:
        return durable.read_holder(folder / "run.lock", f"the run folder {folder}")
    except (OSError, UserError):
        return None


def read_run(folder: Path) -> dict[str, Any]:
    """The run's run.json; empty when it has none yet.

    Raises:
        UserError: it was damaged, or cannot be read.
    """
    path = folder / "run.json"
    try:
        found = _read_json(path)
        for key, kind in (("attempts", list), ("auto", dict), ("results", dict)):
            if not isinstance(found.get(key) or kind(), kind):
                raise ValueError(f"{key} is {found[key]!r}")
        return found
    except ValueError as error:
        aside = shlex.join(["mv", str(path), f"{path}.damaged"])
        raise UserError(
            f"{path} was damaged ({error}). The checkpoints beside it are still good. Move it aside: {aside} "
            "and type the command again: the run goes on from its newest checkpoint and writes the file "
            "anew. Only the record of its earlier attempts is lost; every `auto` is settled anew"
        ) from error


def next_attempt(folder: Path) -> int:
    """Number of the attempt that begins next, from 1.

    Raises:
        UserError: run.json was damaged, or cannot be read.
    """
    return len(read_run(folder).get("attempts", [])) + 1


def _read_json(path: Path) -> dict[str, Any]:
    """Raises ValueError for what is no JSON object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected an object, found {type(found).__name__}")
    return found


def record_attempt(
    folder: Path,
    plan: dict[str, Any],
    auto: dict[str, Any],
    implementation: dict[str, str],
    provenance: dict[str, Any],
    *,
    ranks: int = 1,
    ensemble: dict[str, Any] | None = None,
) -> None:
    """Note in run.json that an attempt begins: what it computes, with which choices, code and versions.

    ensemble: the runs that it is trained together with.
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
    durable.write_json(
        folder / "run.json",
        {
            "version": RUN_FOLDER_VERSION,
            **fields_of_plan,
            "restored": run.get("restored") or fields_of_plan.get("restored"),  # with what matched
            "auto": auto,
            "implementation": implementation,
            "results": run.get("results"),
            **({"ensemble": ensemble} if ensemble else {}),
            "attempts": attempts,
        },
    )


def update_attempt(folder: Path, **changes: Any) -> None:
    """Add facts to the attempt that is running."""
    run = read_run(folder)
    run["attempts"][-1].update(changes)
    durable.write_json(folder / "run.json", run)


def update_run(folder: Path, **changes: Any) -> None:
    """Add facts to run.json."""
    durable.write_json(folder / "run.json", {**read_run(folder), **changes})


class Status:
    """status.json, written by the run alone: state, stage, step, attempt, heartbeat, reason.

    is_written: not by the ranks of a run that are not its first.
    """

    def __init__(
        self, folder: Path, attempt: int, total_steps: int | None = None, *, is_written: bool = True
    ) -> None:
        self.attempt = attempt
        self._is_written = is_written
        self._path = folder / "status.json"
        try:
            _read_json(self._path)
        except ValueError as error:
            log.warning("%s was damaged (%s) and is written anew", self._path, error)
        self._fields: dict[str, Any] = {
            "version": RUN_FOLDER_VERSION,
            "state": "running",
            "stage": None,
            "step": None,
            "total_steps": total_steps,
            "attempt": attempt,
            "heartbeat_s": 0.0,
            "reason": None,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }

    def update(self, **changes: Any) -> None:
        """Write the changed fields and a fresh heartbeat (Unix seconds)."""
        self._fields.update(changes, heartbeat_s=round(time.time(), 3))
        if self._is_written:
            durable.write_json(self._path, self._fields)

    def beat(self, every_s: float = 5.0, **changes: Any) -> None:
        """`update` when the last heartbeat is older than `every_s`."""
        if time.time() - self._fields["heartbeat_s"] >= every_s:
            self.update(**changes)


def seeds(config: Config) -> tuple[int, int]:
    """The seeds of the initial weights and of the order of data; `seed` where they are not given."""
    init = config.seed if config.seed_init is None else config.seed_init
    return init, config.seed if config.seed_data is None else config.seed_data


def seed_all(seed: int) -> None:
    """Seed every generator of random numbers that a run may draw from."""
    import random

    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
