"""Signals to the supervisor, taken one by one from the kernel's queue with their senders: sigtimedwait(2)."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

_SENT_BY_KERNEL = 0x80
"""siginfo's SI_KERNEL: for example Ctrl-C in a terminal, which goes to its whole foreground group."""
PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGCONT, signal.SIGWINCH, signal.SIGXCPU,
)  # fmt: skip
TAKEN = (*PASSED_ON, signal.SIGTSTP, signal.SIGCHLD)


@dataclass(frozen=True)
class ReceivedSignal:
    """A signal that this process received."""

    number: int
    from_pid: int | None = None
    """Sender, if known."""
    to_group: bool = False
    """The command has received its own."""


class SignalQueue:
    """Blocks the signals of TAKEN in this process, ignored ones too: the command can have a handler for them.

    before: signals that were blocked already.
    """

    def __init__(self) -> None:
        self.before: set[Any] = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would let children vanish unseen

    def wait(self, timeout_s: float) -> ReceivedSignal | None:
        """The next signal; None if none came in time."""
        found = signal.sigtimedwait(TAKEN, max(0.0, timeout_s))
        if found is None:
            return None
        by_kernel = found.si_code == _SENT_BY_KERNEL
        sender = None if by_kernel or found.si_pid == 0 else found.si_pid
        return ReceivedSignal(found.si_signo, sender, by_kernel)
