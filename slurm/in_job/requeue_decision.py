"""What comes after a run has stopped: is it put back into the queue, or is this the end?"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from slurm.records.start_records import DONE, ENDED, GAVE_UP, PREEMPTED, REQUEUED
from training.interrupt import TIME_IS_UP


@dataclass(frozen=True)
class Stopped:
    """A run's process has ended. state: of the run, by its own word or its end. signal: the first that came
    to the job. idle: starts of this job without a step forward, this one among them.
    """

    state: str
    exit_code: int
    reason: str | None
    signal: int | None
    idle: int


@dataclass(frozen=True)
class Verdict:
    """end: as `starts` has it. exit_code: of the job, unless Slurm starts it again. state: of the run, where
    its own word falls short of it.
    """

    end: str
    exit_code: int
    reason: str | None
    state: str | None = None


def judge(
    stopped: Stopped,
    *,
    may_requeue: bool,
    max_idle: int,
    is_being_preempted: Callable[[], bool | None],
    is_early: bool = False,
    was_for_another_start: Callable[[], bool] = lambda: False,
) -> Verdict:
    """Only a run that was asked to stop, and did, goes on in the same job: an error would come again.

    SIGUSR1 and SIGUSR2 come ahead of a time limit or a preemption. SIGTERM may be a preemption, which Slurm
    is asked about, or late, for an earlier start; else somebody has cancelled the job, or Slurm puts it back
    by itself.

    is_early: it came so long before the time limit that there is another reason for it, and time to ask; or
    nothing is known of a limit.
    """
    number, reason = stopped.signal, stopped.reason
    if stopped.exit_code == 0:
        return Verdict(DONE, 0, None)
    ended = Verdict(ENDED, stopped.exit_code, reason)
    if number is None and was_for_another_start():  # another rank got it
        return _again(stopped, f"{reason}{_LATE}", may_requeue=may_requeue, max_idle=max_idle)
    if number is None or stopped.state not in ("timeout", "cancelled"):
        return ended
    is_term = number == signal.SIGTERM
    if number not in TIME_IS_UP and not is_term:
        return ended
    is_preempted = (is_term or is_early or not may_requeue) and is_being_preempted()
    if is_term and not is_preempted:
        if not was_for_another_start():
            return ended
        return _again(stopped, f"{reason}{_LATE}", may_requeue=may_requeue, max_idle=max_idle)
    told = f"{reason}; another job is to have its place" if is_preempted else f"{reason}"
    state = PREEMPTED if is_preempted else None
    return _again(stopped, told, state, may_requeue=may_requeue, max_idle=max_idle)


_LATE = ", which Slurm sent for the start before, whose node was lost"


def _again(
    stopped: Stopped, reason: str, state: str | None = None, *, may_requeue: bool, max_idle: int
) -> Verdict:
    if may_requeue and stopped.idle >= max_idle:
        return Verdict(GAVE_UP, 1, no_progress(stopped.idle, reason))
    if may_requeue:
        return Verdict(REQUEUED, stopped.exit_code, reason, state)
    return Verdict(ENDED, stopped.exit_code, f"{reason}; not started again: slurm.requeue=false", state)


def no_progress(idle: int, reason: str | None) -> str:
    """Why a run is given up."""
    starts = "1 start" if idle == 1 else f"{idle} starts"
    return (
        f"given up: {starts} of this job brought no step forward (slurm.max_idle_attempts). The last one: "
        f"{reason or 'it ended without a word'}. What helps: more time (slurm.time), smaller steps, or a "
        "smaller training.checkpoint_every"
    )
