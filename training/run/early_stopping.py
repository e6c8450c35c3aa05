"""A run that ends before its budget is met: because it no longer gets better, or because its time is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from conf.schema import Training
from experiment_utils.quantities import format_duration, parse_duration

if TYPE_CHECKING:
    from training.run.loop import Run

PATIENCE, MAX_TIME = "patience", "max_time"


class TimeIsOver(Exception):
    """training.max_time was spent; the run is checkpointed and goes on where it is given more."""


def ended_by(run: Run) -> str | None:
    """Why the run is to end at this step; None: it goes on. All ranks say the same."""
    best = run.best["step"] if run.best is not None else None
    if is_out_of_patience(run.config.training.patience, best, run.step, run.plan.evaluations):
        return PATIENCE
    return MAX_TIME if run.step < run.plan.budget.steps and is_over(run) else None


def is_out_of_patience(patience: int | None, best: int | None, step: int, evaluations: Sequence[int]) -> bool:
    """Whether so many evaluations up to this step came after the best one."""
    if patience is None or best is None:
        return False
    return sum(best < evaluation <= step for evaluation in evaluations) >= patience


def is_over(run: Run) -> bool:
    """Whether max_time was spent in training steps, over all attempts: by the clock of any rank."""
    limit_s = seconds_of(run.config.training)
    if limit_s is None:
        return False
    return bool(run.ranks.largest(int(run.train_seconds >= limit_s)))


def seconds_of(training: Training) -> float | None:
    return None if training.max_time is None else parse_duration(training.max_time)


def says_time_is_over(reason: object) -> bool:
    """Whether that of a status is `tell_time_is_over`'s: another attempt as it was would end at once."""
    return str(reason).startswith(f"training.{MAX_TIME}=")


def tell_time_is_over(run: Run) -> TimeIsOver:
    """What an attempt ends with."""
    left = run.plan.budget.steps - run.step
    spent = format_duration(run.train_seconds)
    return TimeIsOver(
        f"training.max_time={run.config.training.max_time} is over: {spent} of training, {left:,} of "
        f"{run.plan.budget.steps:,} steps left. Give more and type the command again to go on"
        + (f"; val loss {run.stopped_val_loss:.4f}" if run.stopped_val_loss is not None else "")
    )
