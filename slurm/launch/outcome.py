"""Decide how a run ended, from its process and the files in its folder."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiment_utils.errors import UserError
from experiment_utils.exit_status import INTERRUPTED, LEASE_LOST
from experiment_utils.json_values import at_path, is_number
from experiment_utils.quantities import format_duration
from memory.explain import explain
from memory.record.evidence import Evidence
from slurm.launch.processes import Child, is_supervised
from slurm.status import study_states
from slurm.status.last_words import last_words
from slurm.status.run_evidence import RunEvidence, oom_kills
from slurm.status.run_history import RunHistory
from slurm.status.state_table import decide
from training.attempt.run_files import read_run, read_status

_SEE_LOG = "see its log.txt"


@dataclass(frozen=True)
class Outcome:
    """The end of a run."""

    folder: Path
    exit_code: int
    state: str
    """One of `slurm.states.STATES`."""
    val_loss: float | None
    """Final one, in nats a token; None unless the run is done."""
    reason: str | None
    """Why it is not done."""
    seconds: float
    """Time that its process ran; 0 if it was not started."""

    def __str__(self) -> str:
        result = f"val {self.val_loss:.4f}" if self.val_loss is not None else self.reason
        ran = f"  {format_duration(self.seconds)}" if self.seconds else ""
        return f"{self.state} {self.folder.name}  {result}{ran}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def outcome_of(
    folder: Path,
    child: Child,
    before: dict[str, Any],
    supervised: Path | None = None,
    *,
    asked_to_stop: bool = False,
) -> Outcome:
    """Decide how a run ended, by the same table of states as `slurm.status`.

    Args:
        folder: of the run.
        child: its process.
        before: status.json when the child was started. The same content is of an earlier attempt.
        supervised: for a run of an ensemble, the folder that the supervisor of its process writes to.
        asked_to_stop: whether this process got a signal and passed it on.
    """
    if child.exit_code == LEASE_LOST:  # its files are of another process
        return Outcome(folder, LEASE_LOST, "failed", None, "another process has taken it over", child.seconds)
    status = read_status(folder)
    if child.exit_code == 0 or (supervised is not None and status.get("state") == "done"):
        loss = at_path(read_run(folder), "results.val_loss")
        return Outcome(folder, 0, "done", loss if is_number(loss) else None, None, child.seconds)
    is_new = status != before and status.get("state") != "done"
    if not is_new and child.exit_code == INTERRUPTED:
        return Outcome(folder, INTERRUPTED, "cancelled", None, child.last_error() or _SEE_LOG, child.seconds)
    supervised = supervised or folder
    noted = Evidence(supervised).outcome
    is_noted = noted.get("supervisor_pid") == child.process.pid
    ended = {"signal": child.killed_by, "exit_code": child.exit_code, **(noted if is_noted else {})}
    known = RunEvidence(folder, status if is_new else {}, ended)
    decision = decide(
        RunHistory(
            known,
            time.time(),
            explain=lambda: explain(Evidence(supervised)) if is_noted else None,
            # in a job its stderr is the job's, and log.txt has the same
            last_words=lambda: child.last_error() or last_words(known),
            asked_to_stop=asked_to_stop,
        )
    )
    reason = decision.reason or _SEE_LOG
    if child.killed_by == "SIGKILL" and not is_noted and is_supervised(folder):
        reason = f"its supervisor was {reason}"
    if oom_kills(ended):
        reason = f"{reason}. Why: python -m memory explain {shlex.quote(str(supervised))}"
    return Outcome(folder, child.exit_code, decision.state, None, reason, child.seconds)


_EXIT_CODES = {"done": 0, "cancelled": 130}


def outcomes_of(study: Path, runs: Sequence[str]) -> list[Outcome]:
    """Outcomes of runs of a study, in their order; one squeue and one sacct for all of them."""
    found = study_states(study, folders=[study / run for run in runs])
    return [
        Outcome(
            entry.folder,
            _EXIT_CODES.get(entry.state, 1),
            entry.state,
            _val_loss(entry.folder) if entry.state == "done" else None,
            entry.reason,
            0.0,
        )
        for entry in found
    ]


def _val_loss(folder: Path) -> float | None:
    """Final validation loss, nats a token; None if it is not recorded."""
    try:
        found = at_path(read_run(folder), "results.val_loss")
    except UserError:
        return None
    return found if is_number(found) else None
