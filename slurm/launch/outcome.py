"""How a run ended: its process, with what it left in its folder."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiment_utils.exit_status import INTERRUPTED
from experiment_utils.json_values import at_path, is_number
from memory.explain import explain
from memory.record.evidence import Evidence
from slurm.launch.processes import Child, is_supervised
from slurm.status.last_words import last_words
from slurm.status.run_evidence import RunEvidence, oom_kills
from slurm.status.run_history import RunHistory
from slurm.status.state_table import decide
from training.attempt.run_files import read_run, read_status

_WHY = {
    "SIGBUS": (
        ", most likely because a token file was truncated in the moment in which it was read. See whether it "
        "is whole (pretokenize_dataset.py verify), and type the same command again to go on from the last "
        "checkpoint"
    )
}
"""What is known of a signal, behind its name."""
_SEE_LOG = "see its log.txt"


@dataclass(frozen=True)
class Outcome:
    """How a run ended. val_loss: its final one, nats a token; reason: why it is not `done`."""

    folder: Path
    exit_code: int
    state: str
    val_loss: float | None
    reason: str | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def outcome_of(
    folder: Path,
    child: Child,
    before: dict[str, Any],
    sampled: Path | None = None,
    *,
    asked_to_stop: bool = False,
) -> Outcome:
    """How the run ended: the child's exit, with what it left in its folder, judged as `slurm.status` does.

    before: status.json as it was when the child was started; what it says is of an earlier attempt. sampled:
    of a run of an ensemble, whose child ran others too: the folder in which its supervisor wrote.
    asked_to_stop: the signal that ended it came from this process, which got it too.
    """
    is_done = sampled is not None and read_status(folder).get("state") == "done"
    if child.exit_code == 0 or is_done:
        found = at_path(read_run(folder), "results.val_loss")
        val_loss = found if is_number(found) else None
        return Outcome(folder, 0, "done", val_loss, None, child.seconds)
    status = read_status(folder)
    told = Evidence(sampled or folder).outcome
    is_told = told.get("supervisor_pid") == child.process.pid
    if not is_told:  # of an earlier attempt, or nobody was there to tell
        told = {}
    told = {"signal": child.killed_by, "exit_code": child.exit_code, **told}
    said = status if status != before and status.get("state") != "done" else {}
    if not said and child.exit_code == INTERRUPTED:
        return Outcome(folder, INTERRUPTED, "cancelled", None, child.last_error() or _SEE_LOG, child.seconds)
    known = RunEvidence(folder, said, told)
    decision = decide(
        RunHistory(
            known,
            time.time(),
            explain=lambda: explain(Evidence(sampled or folder)) if is_told else None,
            # in a job its stderr is the job's, and its log has the same
            last_words=lambda: child.last_error() or last_words(known),
            asked_to_stop=asked_to_stop,
        )
    )
    reason = decision.reason or _SEE_LOG
    if child.killed_by == "SIGKILL" and not is_told and is_supervised(folder):
        reason = f"its supervisor was {reason}"
    if decision.rule.startswith("killed"):
        reason += _WHY.get(str(child.killed_by), "")
    if oom_kills(told):
        reason = f"{reason}. Why: python -m memory explain {shlex.quote(str(sampled or folder))}"
    return Outcome(folder, child.exit_code, decision.state, None, reason, child.seconds)
