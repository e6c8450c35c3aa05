"""Asking a run to stop: signals set a flag, the run stops at its next step boundary."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What asks a run to stop."""
TIME_IS_UP = (signal.SIGUSR1, signal.SIGUSR2)
"""What Slurm is told to send ahead of a time limit (`sbatch --signal`), at some sites of a preemption too."""
GRACE_S = 30.0
"""Between SIGTERM and SIGKILL: Slurm's KillWait and a partition's GraceTime, as most sites have them."""
NO_LIMIT_S = 300 * 86400.0
_PR_SET_PDEATHSIG = 1
SAME_KEYPRESS_S = 1.0
"""A terminal sends Ctrl-C to the whole process group, and the parent passes its own on: one wish."""


class Interrupted(Exception):
    """The run stopped because a signal asked for it."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        super().__init__(signal.Signals(signal_number).name)


def is_left_alone(number: int) -> bool:
    """True for a hangup that is ignored, as nohup does it: the user wants the run to outlive the terminal.

    Not so for SIGINT, which a shell ignores for whatever it starts in the background of a script.
    """
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN


def stop_with_parent(parent: int) -> None:
    """Let SIGTERM come when the process `parent` is gone, so that nobody trains on without a master.

    Linux only (prctl(2), PR_SET_PDEATHSIG); elsewhere nothing happens. A parent that is killed outright
    cannot pass anything on.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was gone before
        os.kill(os.getpid(), signal.SIGTERM)


class Interrupt:
    """Within the `with` block SIGNALS only note that a stop is wanted.

    A SIGHUP that nohup has ignored stays so; signals that the parent had blocked are let in. A second
    SIGINT, later than the same keypress can explain, raises KeyboardInterrupt at once.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        self._requested_at = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in SIGNALS:
            if not is_left_alone(number):
                self._previous[number] = signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def is_due(self) -> bool:
        """Whether to `agree` behind the step that was just taken: always, where it costs nothing."""
        return True

    def agree(self) -> int | None:
        """What is asked of the run; where it has several ranks (`training.distributed`), of any of them."""
        return self.requested

    def check(self) -> None:
        """Raise Interrupted when a stop is wanted."""
        if self.requested is not None:
            raise Interrupted(self.requested)

    def left_s(self) -> float | None:
        """Until the job is killed, as far as anybody knows; None where nothing is known to come.

        After SIGTERM that is the grace (HIGHWATER_GRACE_S, else 30 s). After SIGUSR1 or SIGUSR2 it is the
        rest of the time limit, where Slurm tells its end; it may be a preemption, whose grace is not told.
        """
        if self.requested is None or "SLURM_JOB_ID" not in os.environ or self.requested == signal.SIGINT:
            return None
        grace_s = _number("HIGHWATER_GRACE_S", GRACE_S) - (time.monotonic() - self._requested_at)
        if self.requested not in TIME_IS_UP:
            return grace_s
        left_s = job_left_s()
        return grace_s if left_s is None else left_s

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested is None:
            self.requested, self._requested_at = number, now
            # Not through logging: the signal may have come while its lock was held.
        elif number == signal.SIGINT and now - self._requested_at > SAME_KEYPRESS_S:
            raise KeyboardInterrupt


def job_left_s() -> float | None:
    """Until the time limit of the job; None where Slurm has not told of it, as 22.05 and older do not.

    Of a job without a limit Slurm tells an end that is a year away: more than NO_LIMIT_S.
    """
    end_s = _number("SLURM_JOB_END_TIME", 0.0)
    return end_s - time.time() if end_s else None


def _number(variable: str, otherwise: float) -> float:
    try:
        return float(os.environ[variable])
    except (KeyError, ValueError):
        return otherwise
