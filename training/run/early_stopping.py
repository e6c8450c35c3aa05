"""Ends of a run before its budget is met: it no longer improves, or its time is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from conf.schema import Training
from experiment_utils.quantities import format_duration, parse_duration

if TYPE_CHECKING:
    from training.run.loop import Run

PATIENCE, MAX_TIME = "patience", "max_time"


class TimeIsOver(Exception):
    """training.max_time was spent; the run is checkpointed and resumes if it is given more."""


def ended_by(run: Run) -> str | None:
    """Reason to end the run at this step, equal on all ranks; None: it continues."""
    best = run.best["step"] if run.best is not None else None
    if is_out_of_patience(run.config.training.patience, best, run.step, run.plan.evaluations):
        return PATIENCE
    return MAX_TIME if run.step < run.plan.budget.steps and is_over(run) else None


def is_out_of_patience(patience: int | None, best: int | None, step: int, evaluations: Sequence[int]) -> bool:
    """Whether `patience` evaluations or more up to this step came after the best one."""
    if patience is None or best is None:
        return False
    return sum(best < evaluation <= step for evaluation in evaluations) >= patience


def is_over(run: Run) -> bool:
    """Whether max_time was spent in training steps over all attempts, by the clock of any rank."""
    limit_s = seconds_of(run.config.training)
    if limit_s is None:
        return False
    return bool(run.ranks.largest(int(run.train_seconds >= limit_s)))


def seconds_of(training: Training) -> float | None:
    return None if training.max_time is None else parse_duration(training.max_time)


def says_time_is_over(reason: object) -> bool:
    """Whether the reason of a status is `time_is_over`: a new attempt with this limit would end too."""
    return str(reason).startswith(f"training.{MAX_TIME}=")


def time_is_over(run: Run) -> TimeIsOver:
    """Make the error that ends an attempt, with the time spent and the steps left."""
    left = run.plan.budget.steps - run.step
    spent = format_duration(run.train_seconds)
    return TimeIsOver(
        f"training.max_time={run.config.training.max_time} is over: {spent} of training, {left:,} of "
        f"{run.plan.budget.steps:,} steps left. Give more and type the command again to resume"
        + (f"; val loss {run.stopped_val_loss:.4f}" if run.stopped_val_loss is not None else "")
    )
