"""How a run ended, or where it is, in a state and in words.

states: those of every room (docs/run-folder.md). A run that was killed cannot say so: status.json
still reads `running`. Its lock then tells whether that process is there.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from experiment_utils.quantities import format_duration
from experiment_utils.run_folder import RunFolder
from memory.evidence import Evidence
from memory.explain import explain
from training.attempt.run_files import STALLED_AFTER_S
from training.stopping import says_time_is_over


@dataclass(frozen=True)
class Outcome:
    """state: one word. reason: why it is not `done`, None for one that is. step: optimizer steps done."""

    state: str
    reason: str | None
    step: int | None
    total_steps: int | None

    @property
    def is_done(self) -> bool:
        return self.state == "done"

    @property
    def steps(self) -> str:
        """`step 400 of 489`."""
        if self.step is None:
            return "no step"
        return f"step {self.step:,}" + (f" of {self.total_steps:,}" if self.total_steps else "")


def outcome_of(run: RunFolder) -> Outcome:
    """The state that status.json gives, or what became of a run whose status cannot be true any more."""
    status = run.status
    state, reason = status.get("state"), status.get("reason")
    if not isinstance(state, str) and (run.path / "outcome.json").exists():  # its supervisor saw it end
        state, reason = _why_it_vanished(run, "before it wrote its first status")
    elif not isinstance(state, str):
        state, reason = "queued", "it has not started yet"
    elif state == "running":
        state, reason = _running(run)
    return Outcome(state, reason, _count(status.get("step")), _count(status.get("total_steps")))


def diverged(run: RunFolder) -> bool:
    """True when the last step written has a loss or gradient norm that is not finite."""
    last = [run.column(name)[-1:] for name in ("train_loss", "grad_norm")]
    return any(not math.isfinite(value) for values in last for value in values)


def time_was_over(run: RunFolder) -> bool:
    """True when it stopped at its training.max_time, which is of all its attempts: the next would at once."""
    status = run.status
    return status.get("state") == "timeout" and says_time_is_over(status.get("reason"))


def how_to_go_on(run: RunFolder) -> str:
    """What the same command would do with a run that has ended, but not as `done`."""
    if diverged(run):
        return "Typed again as it is, it would go the same way: change it first"
    if time_was_over(run):
        return "Type the same command with a larger training.max_time to go on from there"
    if run.checkpoint_step is None:
        return "Type the same command again to start it over: it has no checkpoint yet"
    return f"Type the same command again to go on from the checkpoint of step {run.checkpoint_step:,}"


def _running(run: RunFolder) -> tuple[str, str | None]:
    holder = run.holder
    beat_s = run.status.get("heartbeat_s")
    silent_s = time.time() - beat_s if isinstance(beat_s, int | float) else math.inf
    if holder is None or holder.is_gone():
        now = RunFolder(run.path).status
        if now.get("state") not in ("running", None):  # it ended between the two looks
            return now["state"], now.get("reason")
        where = f"in stage {run.status.get('stage')}"
        ago = f", last heard of {format_duration(silent_s)} ago" if math.isfinite(silent_s) else ""
        return _why_it_vanished(run, f"{where}{ago}")
    if silent_s > STALLED_AFTER_S and math.isfinite(silent_s):
        return "stalled", f"no heartbeat for {format_duration(silent_s)} from {holder}"
    return "running", f"{holder}"


def _why_it_vanished(run: RunFolder, where: str) -> tuple[str, str]:
    """What its supervisor, the kernel's counters and its log say; else that nobody knows."""
    found = explain(Evidence(run.path))
    if found.confidence == "possible" or found.verdict in ("unknown", "healthy"):
        return "failed", f"its process ended without a word, {where}: killed, or the machine went down"
    state = (
        "oom" if found.verdict.startswith("oom_") else "timeout" if found.verdict == "timeout" else "failed"
    )
    return state, f"{found.sentence.rstrip('.')}, {where}"


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
