"""The end of a run, or its progress, as a state and as text.

states: those of every room (docs/run-folder.md). A run that was killed cannot say so: status.json
still reads `running`. Its lock then shows whether that process exists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiment_utils.run_folder import RunFolder
from training.run.early_stopping import says_time_is_over


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
    """The state of a run by the rules of `slurm.status`; Slurm itself is not asked."""
    from slurm.status.slurm_answers import SlurmAnswers
    from slurm.status.study_status import run_states

    entry = run_states([run.path], answers=SlurmAnswers())[0]
    return Outcome(entry.state, entry.reason, entry.progress.step, entry.progress.total_steps)


def diverged(run: RunFolder) -> bool:
    """True when the last step written has a loss or gradient norm that is not finite."""
    last = [run.column(name)[-1:] for name in ("train_loss", "grad_norm")]
    return any(not math.isfinite(value) for values in last for value in values)


def time_was_over(run: RunFolder) -> bool:
    """True when it stopped at its training.max_time, which is of all its attempts: the next would at once."""
    status = run.status
    return status.get("state") == "timeout" and says_time_is_over(status.get("reason"))


def how_to_go_on(run: RunFolder) -> str:
    """The effect of the same command on a run that has ended, but not as `done`."""
    if diverged(run):
        return "Typed again as it is, it would go the same way: change it first"
    if time_was_over(run):
        return "Type the same command with a larger training.max_time to go on from there"
    if run.checkpoint_step is None:
        return "Type the same command again to start it over: it has no checkpoint yet"
    return f"Type the same command again to go on from the checkpoint of step {run.checkpoint_step:,}"
