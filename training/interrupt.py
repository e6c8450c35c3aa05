"""Requests to stop a run: signals set a flag, and the run stops at its next step boundary."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that request a stop."""
TIME_IS_UP = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals before a time limit (`sbatch --signal`); some sites send them before a preemption too."""
GRACE_S = 30.0
"""Seconds from SIGTERM to SIGKILL: Slurm's KillWait and a partition's GraceTime at most sites."""
NO_LIMIT_S = 300 * 86400.0
"""For a job without a limit, Slurm gives an end a year away."""
_PR_SET_PDEATHSIG = 1
SAME_KEYPRESS_S = 1.0
"""One Ctrl-C arrives twice: the terminal sends it to the process group, and the parent forwards its own."""


class Interrupted(Exception):
    """The run stopped because a signal asked for it."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        super().__init__(signal.Signals(signal_number).name)


def is_left_alone(number: int) -> bool:
    """True for an ignored hangup, as under nohup: the run is to outlive the terminal.

    An ignored SIGINT is not left alone: a shell ignores it for all background commands of a script.
    """
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN


def stop_with_parent(parent: int) -> None:
    """Receive SIGTERM when the process `parent` ends: a parent that is killed forwards no signal.

    Linux only (prctl(2), PR_SET_PDEATHSIG); elsewhere nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before
        os.kill(os.getpid(), signal.SIGTERM)


class Interrupt:
    """Within the `with` block SIGNALS only record that a stop is requested.

    A SIGHUP that nohup ignores stays ignored; signals that the parent blocked are unblocked. A second SIGINT,
    more than a second later, raises KeyboardInterrupt immediately.
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
        """Whether to `agree` after the last step: always, since it costs nothing in one process."""
        return True

    def agree(self) -> int | None:
        """Signal that requests a stop, sent to any rank of the run (`training.distributed`)."""
        return self.requested

    def check(self) -> None:
        """Raise Interrupted if a stop is requested."""
        if self.requested is not None:
            raise Interrupted(self.requested)

    def left_s(self) -> float | None:
        """Estimated seconds until the job is killed; None if no kill is expected.

        After SIGTERM that is the grace (HIGHWATER_GRACE_S, otherwise 30 s). After SIGUSR1 or SIGUSR2 it is
        the rest of the time limit, if Slurm gives its end; the grace of a preemption is not known.
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
    """Seconds until the time limit of the job; None if Slurm does not give it (22.05 and older).

    More than NO_LIMIT_S for a job without a limit.
    """
    end_s = _number("SLURM_JOB_END_TIME", 0.0)
    return end_s - time.time() if end_s else None


def _number(variable: str, otherwise: float) -> float:
    try:
        return float(os.environ[variable])
    except (KeyError, ValueError):
        return otherwise
