"""Whether the job of a run that has stopped goes back into the queue."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from slurm.records.start_records import DONE, ENDED, GAVE_UP, PREEMPTED, REQUEUED
from training.interrupt import TIME_IS_UP

_LATE = ", which Slurm sent for the start before, whose node was lost"


@dataclass(frozen=True)
class Stopped:
    """A run whose process has ended."""

    state: str
    """State of the run, by its own files or by how it ended."""
    exit_code: int
    reason: str | None
    signal: int | None
    """The first that came to the job."""
    idle: int
    """Starts of this job without a new checkpoint, this one among them."""


@dataclass(frozen=True)
class Verdict:
    """Decision on a run that has stopped, and on its job."""

    end: str
    """Kind of end, as starts.json has it."""
    exit_code: int
    """Exit code of the job, unless Slurm starts it again."""
    reason: str | None
    state: str | None = None
    """State of the run, if more is known than its files say."""


def judge(
    stopped: Stopped,
    *,
    may_requeue: bool,
    max_idle: int,
    is_being_preempted: Callable[[], bool | None],
    is_early: bool = False,
    was_for_another_start: Callable[[], bool] = lambda: False,
) -> Verdict:
    """Decide: only a run that was asked to stop, and did, goes back. An error would come again.

    SIGUSR1 and SIGUSR2 come ahead of a time limit or a preemption. SIGTERM can be a preemption, which Slurm
    is asked about, or late, for an earlier start; else the job was cancelled, or Slurm puts it back itself.

    Args:
        stopped: the run.
        may_requeue: slurm.requeue.
        max_idle: slurm.max_idle_attempts.
        is_being_preempted: asks Slurm.
        is_early: the signal came too long before the time limit to be of it, or no limit is known.
        was_for_another_start: whether SIGTERM was for an earlier start of the job.
    """
    number, reason = stopped.signal, stopped.reason
    if stopped.exit_code == 0:
        return Verdict(DONE, 0, None)
    is_term = number == signal.SIGTERM
    is_asked = number in TIME_IS_UP or is_term
    is_late, is_preempted = False, False
    if number is None:  # another rank of the run can have got it
        is_late = was_for_another_start()
    elif is_asked and stopped.state in ("timeout", "cancelled"):
        is_preempted = bool((is_term or is_early or not may_requeue) and is_being_preempted())
        is_late = is_term and not is_preempted and was_for_another_start()
    else:
        is_asked = False
    if not is_late and (not is_asked or (is_term and not is_preempted)):
        return Verdict(ENDED, stopped.exit_code, reason)
    reason = f"{reason}{_LATE * is_late}{'; another job is to have its place' * is_preempted}"
    state = PREEMPTED if is_preempted else None
    if not may_requeue:
        return Verdict(ENDED, stopped.exit_code, f"{reason}; not started again: slurm.requeue=false", state)
    if stopped.idle >= max_idle:
        return Verdict(GAVE_UP, 1, no_progress(stopped.idle, reason))
    return Verdict(REQUEUED, stopped.exit_code, reason, state)


def no_progress(idle: int, reason: str | None) -> str:
    """Reason of a run that is given up after `idle` starts, the last of which ended for `reason`."""
    starts = "1 start" if idle == 1 else f"{idle} starts"
    return (
        f"given up: {starts} of this job brought no step forward (slurm.max_idle_attempts). The last one: "
        f"{reason or 'it ended without a word'}. What helps: more time (slurm.time), smaller steps, or a "
        "smaller training.checkpoint_every"
    )
