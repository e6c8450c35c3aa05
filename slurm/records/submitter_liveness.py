"""Who submits, or is to start, what a submission names: whether that process is still there.

An sbatch holds a lock on the submission's file `sending` as its submitter does, and outlives it
(`slurm.queue.send`). A process that works through runs of this machine touches `alive`, so that it is missed
from another machine too.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress

from experiment_utils import lock_file
from experiment_utils.errors import UserError
from memory.measure.process import started_at
from slurm.records.submissions import SUBMISSIONS, Array, Submission

SENDING, ALIVE, LOCK = "sending", "alive", "lock"
TIMEOUT_S = 300.0
"""Of an sbatch."""
NEVER_SENT = "was never submitted: what submitted it ended before"
"""In place of what sbatch said against an array: nobody has asked it."""
NO_ROOM = "the queue had no room for it (MaxSubmitJobs, MaxJobCount)"
"""The same of a run that nobody has handed to sbatch yet."""
BEAT_S = 30.0
_MISSED_S = 300.0


def has_ended(submission: Submission) -> bool:
    """Whether neither the submitter nor an sbatch of it is there any more, on this host."""
    try:
        with open(submission.folder / SENDING) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    except OSError:
        return time.time() - sent_last_s(submission) > TIMEOUT_S


def sent_last_s(submission: Submission) -> float:
    """When the last sbatch was called, seconds since the epoch; 0 where none was."""
    try:
        return (submission.folder / SENDING).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def submitter_lives(submission: Submission) -> bool | None:
    """Whether somebody still submits what the submission names; None: on another machine, perhaps.

    Whoever submits holds the lock of the study, from before the submission is written to its end.
    """
    try:
        holder = lock_file.read_holder(submission.study / SUBMISSIONS / LOCK, "submitting")
    except (OSError, UserError):
        return None
    if holder is not None and not holder.is_gone():
        return True if holder.host == os.uname().nodename else None
    return not has_ended(submission)


def beat(submission: Submission) -> None:
    """A sign of life of the process that works through a submission on this machine."""
    with suppress(OSError):
        (submission.folder / ALIVE).touch()


def this_process() -> str:
    """`HOST:PID:STARTED_AT` of it."""
    return f"{os.uname().nodename}:{os.getpid()}:{started_at(os.getpid())}"


def waiter_lives(array: Array) -> bool | None:
    """Of runs that the queue had no room for: whether a command waits to submit them; None: on another
    machine, perhaps.
    """
    if array.waiter is None:
        return False
    waiter = _holder(array.waiter)
    return None if waiter is None or waiter.host != os.uname().nodename else not waiter.is_gone()


def launcher_lives(submission: Submission, array: Array, now_s: float) -> bool | None:
    """Of runs of a machine in the background or in front of somebody (HOST:PID:STARTED_AT): whether their
    process is there; None: that cannot be told from here.
    """
    launcher = _holder(array.job_id or "")
    if launcher is None:
        return None
    if launcher.host == os.uname().nodename:
        return not launcher.is_gone()
    try:
        return False if now_s - (submission.folder / ALIVE).stat().st_mtime > _MISSED_S else None
    except OSError:
        return None


def _holder(process: str) -> lock_file.Holder | None:
    """Who `HOST:PID:STARTED_AT` is; None where it is not written so."""
    host, _, rest = process.partition(":")
    pid, _, since = rest.partition(":")
    return (
        lock_file.Holder(host, int(pid), int(since), "", None) if pid.isdigit() and since.isdigit() else None
    )
