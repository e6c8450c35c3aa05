"""Signals that come to the supervisor, one by one, none lost, and who sent them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

_SENT_BY_KERNEL = 0x80
"""siginfo's SI_KERNEL: of a terminal's Ctrl-C, which its whole foreground group gets."""
PASSED_ON = tuple(
    getattr(signal, name)
    for name in (
        "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCONT", "SIGWINCH",
        "SIGXCPU",
    )
    if hasattr(signal, name)
)  # fmt: skip
TAKEN = (*PASSED_ON, signal.SIGTSTP, signal.SIGCHLD)


@dataclass(frozen=True)
class Letter:
    """A signal. from_pid: who sent it, None if that is not known. to_group: the command has had its own."""

    number: int
    from_pid: int | None = None
    to_group: bool = False


class Inbox:
    """Blocks the signals and takes them from the kernel's queue: sigtimedwait(2), which macOS lacks.

    before: signals that were blocked already. One that is ignored is taken too: the command may have a
    handler for it, or ignore it as it inherited that.
    """

    def __init__(self) -> None:
        self.before: set[Any] = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would let children vanish unseen

    def wait(self, timeout_s: float) -> Letter | None:
        """The next one; None if none came in time."""
        found = signal.sigtimedwait(TAKEN, max(0.0, timeout_s))
        if found is None:
            return None
        by_kernel = found.si_code == _SENT_BY_KERNEL
        sender = None if by_kernel or found.si_pid == 0 else found.si_pid
        return Letter(found.si_signo, sender, by_kernel)


class HandledInbox:
    """The same with handlers and a pipe, for systems without sigtimedwait. Nobody knows who sent them."""

    def __init__(self) -> None:
        self.before: set[Any] = signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)
        self._read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self._waiting = b""
        self._is_open = False

    def wait(self, timeout_s: float) -> Letter | None:
        """The next one; None if none came in time."""
        if not self._is_open:  # from here on: the child that was forked before has none of these handlers
            self._is_open = True
            for number in TAKEN:
                if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
                    signal.signal(number, _noted)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, TAKEN)
        if not self._waiting:
            import select

            ready, _, _ = select.select([self._read_end], [], [], max(0.0, timeout_s))
            self._waiting = os.read(self._read_end, 64) if ready else b""
        if not self._waiting:
            return None
        number, self._waiting = self._waiting[0], self._waiting[1:]
        return Letter(number)


def open_inbox() -> Inbox | HandledInbox:
    """From here on no signal ends this process."""
    return Inbox() if hasattr(signal, "sigtimedwait") else HandledInbox()


def _noted(number: int, frame: object) -> None:
    """Its number is in the pipe already."""
