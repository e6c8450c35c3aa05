"""State, exit code and reason of an attempt that ended in an error, and the log line for the user."""

from __future__ import annotations

import errno
import logging
import os
import shlex
import signal
from pathlib import Path

from experiment_utils.atomic_files import Unreadable
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_duration
from training.checkpoint.checkpoints import checkpoint_steps
from training.devices.cuda_errors import cuda_fault
from training.devices.out_of_memory import is_device_oom, reason_of
from training.distributed.place import Place
from training.distributed.ranks import RankFailed
from training.distributed.rendezvous import RanksMissing
from training.interrupt import NO_LIMIT_S, TIME_IS_UP, Interrupted, job_left_s
from training.report.progress import NonFinite
from training.run.early_stopping import TimeIsOver
from training.step.spike_guard import Diverged

log = logging.getLogger("training")

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


def ending_of(error: BaseException, folder: Path) -> tuple[str, int, str]:
    """Return state, exit code and reason of an attempt that ended in `error`, and log the reason."""
    newest = _newest(folder / "checkpoints")
    if isinstance(error, Interrupted | KeyboardInterrupt):
        by_user = isinstance(error, KeyboardInterrupt) or error.signal_number == signal.SIGINT
        reason = "interrupted (Ctrl-C)" if by_user else f"stopped by {error}"
        how = f"resume from {newest}" if newest else "start it over: it has no checkpoint yet"
        log.info("%s; type the same command again to %s", reason, how)
        if isinstance(error, Interrupted) and error.signal_number in TIME_IS_UP:
            kept = f"{newest} is kept" if newest else "it has no checkpoint yet"
            return "timeout", 1, f"{reason}{_of_the_limit(job_left_s())}; {kept}"
        return "cancelled", 130 if by_user else 1, reason
    if isinstance(error, UserError):
        for problem in error.problems:
            log.error("error: %s", problem)
        return "failed", 2, str(error)
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        reason = (
            f"cannot write {error.filename or 'the run folder'}: {error.strerror}. Make room and type the "
            f"same command again to {f'resume from {newest}' if newest else 'start it over'}"
        )
        log.error("error: %s", reason)
        return "failed", 2, reason
    if isinstance(error, RankFailed | RanksMissing):
        reason = str(error)
        if isinstance(error, RankFailed):
            its = Place(rank=error.failure.rank)
            reason += f" (its log: {its.file('log.txt')})"
            if error.failure.kind == "lost":
                reason += f". Why: python -m memory explain {shlex.quote(str(its.folder(folder)))}"
        log.error("failed: %s", reason)
        return "failed", 1, reason
    if isinstance(error, TimeIsOver):
        log.info("%s", error)
        return "timeout", 1, str(error)
    if isinstance(error, NonFinite | Diverged):
        reason = f"{error}. {_kept(newest)}"
        log.error("error: %s", reason)
        return "failed", 1, reason
    if is_device_oom(error):
        reason = reason_of(error, folder)
        log.error("failed: %s (the traceback is in log.txt)", reason, exc_info=error)
        return "oom", 1, reason
    fault = cuda_fault(error)
    if fault is not None:
        reason = f"{fault}. {_kept(newest)}"
        log.error("failed: %s", reason, exc_info=error)
        return "failed", 1, reason
    reason = f"{type(error).__name__}: {error}"
    log.error("failed: %s (the traceback is in log.txt)", reason, exc_info=error)
    return "failed", 1, reason


def _newest(checkpoints: Path) -> str | None:
    """Name of the newest checkpoint for messages; None if it does not exist."""
    try:
        steps = checkpoint_steps(checkpoints)
    except Unreadable:
        return f"the newest checkpoint ({checkpoints} cannot be read now)"
    return f"the checkpoint of step {steps[-1]:,}" if steps else None


def _kept(newest: str | None) -> str:
    return f"{newest[0].upper()}{newest[1:]} is kept" if newest else "There is no checkpoint yet"


def _of_the_limit(left_s: float | None) -> str:
    """Known reason for a signal before a time limit or a preemption, as the end of a sentence."""
    if "SLURM_JOB_ID" not in os.environ:
        return ""
    if left_s is None:
        return ", which is sent before a time limit or a preemption"
    if left_s > NO_LIMIT_S:
        return "; its job has no time limit"
    return f", {format_duration(left_s)} before its time limit" if left_s > 0 else ", as its time was up"
