"""In the run: answer a real-time signal with the Python stacks of all threads.

    with black_box.installed(folder, attempt=1):
        ...

`python -m memory stacks RUN` sends the signal at any time, the supervisor when memory is nearly out. A Python
handler answers between two instructions of the main thread, when all frames are whole. While the main thread
is in a call of C that has released the GIL (a collective, a slow disk), a small thread answers for it. Forked
workers answer by the handler. Answers go to a hidden file of the run's folder, which the first shortage of
memory renames to `memory.blackbox.ATTEMPT.txt`.
"""

from __future__ import annotations

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
    ATTEMPT_VARIABLE,
    NEAR_LIMIT,
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
"""Enough of the file's end to hold its last line."""


class BlackBox:
    """The handler of the stacks signal, until `close`."""

    def __init__(self, folder: str, attempt: int, largest: Largest | None) -> None:
        global _newest
        self._folder, self._attempt, self._largest = folder, attempt, largest
        self._pid = os.getpid()
        self._path = hidden_path(folder, attempt)
        self._lock = threading.Lock()
        self._is_largest_due = False
        # O_APPEND: several processes answer into one file
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        signal.signal(STACKS_SIGNAL, self._on_signal)
        signal.siginterrupt(STACKS_SIGNAL, False)
        _newest = self
        _start_thread()

    def close(self) -> None:
        """Stop answering, and remove the file unless it was needed. In a forked worker only the former."""
        with suppress(ValueError):  # outside the main thread
            # ignored, not reset: a process that has just seen the handler must not kill this one by asking
            signal.signal(STACKS_SIGNAL, signal.SIG_IGN)
        with self._lock, suppress(OSError):
            file, self._file = self._file, -1
            os.close(file)
        if os.getpid() == self._pid:
            with suppress(OSError):
                os.unlink(self._path)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._answer(frame)
        if self._is_largest_due:
            self._is_largest_due = False
            self._write_largest()

    def _answer(self, frame: FrameType | None) -> None:
        """Write the stacks, unless the other thread does. frame: where the signal met the calling thread."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            question = self._question()
            if question is not None:
                self._is_largest_due = NEAR_LIMIT.encode() in question and os.getpid() == self._pid
                os.write(self._file, stacks(frame).encode(errors="replace"))
        except Exception as error:  # MemoryError, or a full disk: a question must not end the run
            log.debug("stacks cannot be written: %s", error)
        finally:
            self._lock.release()

    def _question(self) -> bytes | None:
        """The last line of the file if it is a question to this process that has no answer yet."""
        if self._file < 0:
            return None
        size = os.fstat(self._file).st_size
        end = os.pread(self._file, _LAST_BYTES, max(0, size - _LAST_BYTES))
        last = end.rstrip(b"\n").rpartition(b"\n")[2]
        is_asked = last.endswith(b"==") and re.search(rb"\b%d\b" % os.getpid(), last)
        return last if is_asked else None

    def _write_largest(self) -> None:
        if self._largest is None:
            return
        temporary = os.path.join(self._folder, f".memory.largest.{self._pid}.tmp")
        try:
            record = {"version": 1, "time_s": time.time(), "pid": self._pid, "largest": self._largest()}
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(record, file, default=str)
            os.replace(temporary, shown_path(self._folder, self._attempt, "json"))
        except Exception as error:  # MemoryError, most likely
            log.debug("the largest objects cannot be written: %s", error)
            with suppress(OSError):
                os.unlink(temporary)


_newest: BlackBox | None = None


def _start_thread() -> None:
    """Start the thread that answers for a main thread in C, once a process.

    It reads the descriptor to which Python writes the number of each signal. One that is set already is of an
    earlier black box, or of an event loop, which needs it.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    if before < 0:
        threading.Thread(target=_wait_for_signals, args=(read_end,), daemon=True).start()
        return
    signal.set_wakeup_fd(before)
    os.close(read_end)
    os.close(write_end)


def _wait_for_signals(descriptor: int) -> None:
    while True:
        if STACKS_SIGNAL in os.read(descriptor, 64) and _newest is not None:
            _newest._answer(None)


def stacks(frame: FrameType | None) -> str:
    """Format the stacks of all threads as faulthandler does, the main thread last.

    Args:
        frame: innermost frame of the main thread; None: as Python knows it.
    """
    main = threading.main_thread().ident or 0
    tops = sys._current_frames()
    frame = frame or tops.get(main)
    others = ((ident, top) for ident, top in tops.items() if ident != main)
    # all but the thread that waits for signals
    found = [_stack("Thread", ident, top) for ident, top in others if top.f_code.co_filename != __file__]
    return "\n".join([*found, _stack("Current thread", main, frame)])


def _stack(kind: str, ident: int, frame: FrameType | None) -> str:
    lines = [f"{kind} 0x{ident:016x} (most recent call first):"]
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    while frame is not None and len(lines) <= _MOST_FRAMES:
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}')
        frame = frame.f_back
    return "\n".join(lines) + "\n"


def install(
    folder: str | os.PathLike[str] | None = None,
    *,
    attempt: int | None = None,
    largest: Largest | None = None,
) -> BlackBox | None:
    """Answer from now on; None if that is impossible (macOS, outside the main thread, a missing folder).

    Args:
        folder: the run's; by default that of `python -m memory run` around this process.
        attempt: number of the run's attempt.
        largest: called in the main thread when memory is nearly out; its result goes to
            memory.blackbox.ATTEMPT.json.
    """
    path = folder or os.environ.get(OUTPUT_VARIABLE)
    number = os.environ.get(ATTEMPT_VARIABLE, "")
    if not path or not STACKS_SIGNAL:
        return None
    try:
        return BlackBox(os.path.abspath(path), attempt or (int(number) if number.isdigit() else 1), largest)
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
