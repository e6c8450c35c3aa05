"""Whether the process that submits, or that works through runs of this machine, is alive.

An sbatch holds a lock on the submission's file `sending`, as its submitter does, and can outlive it
(`slurm.queue.send`). A process that works through runs of this machine touches `alive` all the time, so that
its end is seen from another machine too.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress

from experiment_utils import lock_file
from experiment_utils.errors import UserError
from experiment_utils.safe_read import changed_s
from memory.measure.process import started_at
from slurm.records.submissions import SUBMISSIONS, Array, Submission

SENDING, ALIVE, LOCK = "sending", "alive", "lock"
TIMEOUT_S = 300.0
"""Longest time of one sbatch."""
NEVER_SENT = "was never submitted: what submitted it ended before"
"""`Array.error` if no sbatch was called."""
NO_ROOM = "the queue had no room for it (MaxSubmitJobs, MaxJobCount)"
"""`Array.error` in records of earlier versions, if no sbatch was called since the queue was full."""
BEAT_S = 30.0
"""Time between two touches of `alive`."""
_MISSED_S = 300.0


def has_ended(submission: Submission) -> bool:
    """Whether neither the submitter nor an sbatch of it is alive on this host."""
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
    """Unix time of the last call of sbatch, 0 without one."""
    return changed_s(submission.folder / SENDING)


def submitter_lives(submission: Submission) -> bool | None:
    """Whether a process still submits; None: not known, since it can be on another machine.

    It holds the lock of the study from before the submission is written until its end.
    """
    try:
        holder = lock_file.read_holder(submission.study / SUBMISSIONS / LOCK, "submitting")
    except (OSError, UserError):
        return None
    if holder is not None and not holder.is_gone():
        return True if holder.host == os.uname().nodename else None
    return not has_ended(submission)


def beat(submission: Submission) -> None:
    """Touch `alive`: the process that works through a submission on this machine is alive."""
    with suppress(OSError):
        (submission.folder / ALIVE).touch()


def this_process() -> str:
    """`HOST:PID:STARTED_AT` of this process."""
    return f"{os.uname().nodename}:{os.getpid()}:{started_at(os.getpid())}"


def launcher_lives(submission: Submission, array: Array, now_s: float) -> bool | None:
    """Whether the process that works through runs of a machine is alive; None: not known from here."""
    return _lives(array.job_id, submission, now_s)


def _lives(process: str | None, submission: Submission | None = None, now_s: float = 0.0) -> bool | None:
    """process: HOST:PID:STARTED_AT."""
    host, _, rest = (process or "").partition(":")
    pid, _, since = rest.partition(":")
    if not pid.isdigit() or not since.isdigit():
        return None
    if host == os.uname().nodename:
        return not lock_file.Holder(host, int(pid), int(since), "", None).is_gone()
    beat_s = changed_s(submission.folder / ALIVE) if submission else 0.0
    return False if 0 < beat_s < now_s - _MISSED_S else None
