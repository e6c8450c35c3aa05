"""In the run: it answers, by its Python stacks, when it is asked from outside.

    with black_box.installed(folder, attempt=1):
        ...

The supervisor asks when memory is nearly out, `python -m memory stacks RUN` at any time, both by a real-time
signal (USR1, USR2, TERM and INT have other users). Python answers between two instructions of the main
thread, when all frames are whole. Where it does not come to that, in a long call of C, faulthandler answers a
second signal from within, whatever Python is doing: it reads frames as they are, which crashes where one is
not there yet; so of the other threads only while they stand still. Forked workers answer too. The answers go
to a hidden file of the run's folder, which the first shortage of memory makes `memory.blackbox.ATTEMPT.txt`.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from memory.record.stack_requests import (
    ALL_AT_ONCE_SIGNAL,
    AT_ONCE_SIGNAL,
    ATTEMPT_VARIABLE,
    LARGEST_SIGNAL,
    OUTPUT_VARIABLE,
    STACKS_SIGNAL,
    hidden_path,
    shown_path,
)

log = logging.getLogger("memory")

Largest = Callable[[], list[dict[str, Any]]]
"""The largest tensors and arrays of this process, as plain values."""
_MOST_FRAMES = 100
_LAST_BYTES = 512
"""Of the file, in which its last line is."""


class BlackBox:
    """The handlers, until `close`."""

    def __init__(self, folder: str, attempt: int, largest: Largest | None) -> None:
        self._folder, self._attempt, self._largest = folder, attempt, largest
        self._pid = os.getpid()
        self._path = hidden_path(folder, attempt)
        assert STACKS_SIGNAL is not None
        assert AT_ONCE_SIGNAL is not None
        assert ALL_AT_ONCE_SIGNAL is not None
        assert LARGEST_SIGNAL is not None
        _remove_others(self._path)
        # Appended to, so that nobody's answer overwrites another's.
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        signal.signal(STACKS_SIGNAL, self._tell_stacks)
        signal.siginterrupt(STACKS_SIGNAL, False)
        # What unregister puts back: who has just seen that there is a handler must not kill us by asking.
        for number in (AT_ONCE_SIGNAL, ALL_AT_ONCE_SIGNAL):
            faulthandler.unregister(number)  # of an earlier install, here or before a fork
            signal.signal(number, signal.SIG_IGN)
            of_all = number == ALL_AT_ONCE_SIGNAL
            faulthandler.register(number, file=self._file, all_threads=of_all, chain=False)
        if largest is not None:
            signal.signal(LARGEST_SIGNAL, self._tell_largest)
            signal.siginterrupt(LARGEST_SIGNAL, False)

    def _tell_stacks(self, number: int, frame: FrameType | None) -> None:
        """Between two instructions of the main thread; not where faulthandler has answered meanwhile."""
        with suppress(Exception):  # MemoryError, or a disk that is full: nobody is to die of a question
            if self._file >= 0 and self._is_waited_for():
                os.write(self._file, stacks(frame).encode(errors="replace"))

    def _is_waited_for(self) -> bool:
        """Whether the last line of the file is the question to this process."""
        size = os.fstat(self._file).st_size
        last = (
            os.pread(self._file, _LAST_BYTES, max(0, size - _LAST_BYTES)).rstrip(b"\n").rpartition(b"\n")[2]
        )
        return last.endswith(b"==") and re.search(rb"\b%d\b" % os.getpid(), last) is not None

    def _tell_largest(self, number: int, frame: object) -> None:
        """Between two instructions of the main thread."""
        if os.getpid() != self._pid or self._largest is None:
            return
        temporary = os.path.join(self._folder, f".memory.largest.{self._pid}.tmp")
        try:
            told = {"version": 1, "time_s": time.time(), "pid": self._pid, "largest": self._largest()}
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(told, file, default=str)
            os.replace(temporary, shown_path(self._folder, self._attempt, "json"))
        except Exception as error:  # MemoryError, most likely
            log.debug("the largest objects cannot be told: %s", error)
            with suppress(OSError):
                os.unlink(temporary)

    def close(self) -> None:
        """Answer no more, and take the file away if nobody needed it. In a forked worker only the former."""
        assert STACKS_SIGNAL is not None
        assert AT_ONCE_SIGNAL is not None
        assert ALL_AT_ONCE_SIGNAL is not None
        assert LARGEST_SIGNAL is not None
        faulthandler.unregister(AT_ONCE_SIGNAL)
        faulthandler.unregister(ALL_AT_ONCE_SIGNAL)
        with suppress(ValueError):  # of another thread than the main one
            signal.signal(STACKS_SIGNAL, signal.SIG_IGN)
            if self._largest is not None:
                signal.signal(LARGEST_SIGNAL, signal.SIG_IGN)
        file, self._file = self._file, -1
        with suppress(OSError):
            os.close(file)
        if os.getpid() == self._pid:
            with suppress(OSError):
                os.unlink(self._path)


def stacks(frame: FrameType | None) -> str:
    """Of all threads, as faulthandler writes them; this one last, from `frame` on, where it stood."""
    own = threading.get_ident()
    found = [_stack("Thread", one, top) for one, top in sys._current_frames().items() if one != own]
    return "\n".join([*found, _stack("Current thread", own, frame)])


def _stack(kind: str, ident: int, frame: FrameType | None) -> str:
    lines = [f"{kind} 0x{ident:016x} (most recent call first):"]
    while frame is not None and len(lines) <= _MOST_FRAMES:
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}')
        frame = frame.f_back
    return "\n".join(lines) + "\n"


def _remove_others(path: str) -> None:
    """What attempts left that were killed with their supervisor, before anybody asked."""
    folder, name = os.path.split(path)
    start, _, _ = name.rpartition(".txt")[0].rpartition(".")
    for other in os.listdir(folder):
        if other.startswith(f"{start}.") and other != name:
            with suppress(OSError):
                os.unlink(os.path.join(folder, other))


def install(
    folder: str | os.PathLike[str] | None = None,
    *,
    attempt: int | None = None,
    largest: Largest | None = None,
) -> BlackBox | None:
    """Answer from now on. None where that cannot be: macOS, not the main thread, a folder that is gone.

    Args:
        folder: the run's; by default that of `python -m memory run`, of whose command this process is.
        attempt: of the run.
        largest: called where memory is nearly out, in the main thread; what it returns goes to
            memory.blackbox.ATTEMPT.json.
    """
    given = folder or os.environ.get(OUTPUT_VARIABLE)
    number = attempt or _number(os.environ.get(ATTEMPT_VARIABLE))
    if not given or STACKS_SIGNAL is None:
        return None
    try:
        return BlackBox(os.path.abspath(given), number, largest)
    except (OSError, ValueError, RuntimeError) as error:
        log.debug("no black box: %s", error)
        return None


@contextmanager
def installed(
    folder: str | os.PathLike[str] | None = None,
    *,
    attempt: int | None = None,
    largest: Largest | None = None,
) -> Iterator[BlackBox | None]:
    """`install` for the length of the block."""
    box = install(folder, attempt=attempt, largest=largest)
    try:
        yield box
    finally:
        if box is not None:
            box.close()


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 1
