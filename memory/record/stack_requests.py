"""From outside: ask processes for their Python stacks, one after another, without waiting for any.

Only a process that handles the signal is asked, since it would end any other. SigCgt of /proc/PID/status
(proc(5)) says whether it does.
"""

from __future__ import annotations

import os
import signal
import time

from experiment_utils.safe_read import plain_only
from memory.files.procfs import read_file

STACKS_SIGNAL = signal.SIGRTMIN + 11 if hasattr(signal, "SIGRTMIN") else 0
"""A real-time signal, since USR1, USR2, TERM and INT have other users. 0: macOS has none."""
OUTPUT_VARIABLE, ATTEMPT_VARIABLE = "HIGHWATER_OUTPUT", "HIGHWATER_ATTEMPT"
"""Set by the supervisor for its command."""
NEAR_LIMIT = " unreclaimable "
"""In a heading: memory is nearly out, so the main process also writes its largest tensors and arrays."""
NO_HANDLER = "its program does not answer"
ANSWER_WITHIN_S = 2.0
_COMPLETE_AFTER_S = 0.02
"""An answer is one write; it is complete when the file has not grown for this long."""


def hidden_path(folder: str, attempt: int) -> str:
    """Path of the file of answers."""
    return os.path.join(folder, f".memory.stacks.{attempt}.txt")


def shown_path(folder: str, attempt: int, suffix: str = "txt") -> str:
    """Path of that file from the first shortage of memory on; `json`: of the largest objects."""
    return os.path.join(folder, f"memory.blackbox.{attempt}.{suffix}")


def has_handler(pid: int, number: int, proc: str = "/proc") -> bool:
    """Whether the process handles the signal."""
    _, _, after = (read_file(f"{proc}/{pid}/status") or b"").partition(b"\nSigCgt:\t")
    try:
        caught = int(after.split(None, 1)[0], 16)
    except (ValueError, IndexError):
        return False
    return number > 0 and bool(caught >> (number - 1) & 1)


class StackRequests:
    """One round of questions. Call `step` every few milliseconds until it returns True."""

    def __init__(self, path: str, headings: list[tuple[int, str]]) -> None:
        """Open the file to which answers are appended.

        Args:
            path: made by the processes that answer.
            headings: process id and the line that is written before its answer, `== ... PID ... ==`.

        Raises:
            OSError: the file does not exist, so no process would answer.
        """
        self._file = plain_only(path, os.O_RDWR | os.O_APPEND)
        self._waiting = list(headings)
        self._asked: int | None = None
        self._start = self._size = 0
        self._asked_s = self._grew_s = 0.0
        self.stacks: dict[int, str] = {}
        """Answers by process id."""
        self.silent: dict[int, str] = {}
        """Why a process did not answer."""

    def step(self) -> bool:
        """Continue; returns whether all have been asked and have answered, or had their time."""
        if self._asked is not None and self._has_answered(self._asked):
            self._asked = None
        while self._asked is None and self._waiting:
            self._ask(*self._waiting.pop(0))
        if self._asked is None and self._file >= 0:
            os.close(self._file)
            self._file = -1
        return self._asked is None

    def _ask(self, pid: int, heading: str) -> None:
        if not has_handler(pid, STACKS_SIGNAL):
            self.silent[pid] = NO_HANDLER
            return
        try:
            os.write(self._file, f"\n{heading}\n".encode())
            self._start = self._size = os.fstat(self._file).st_size
            os.kill(pid, STACKS_SIGNAL)
        except OSError as error:
            self.silent[pid] = os.strerror(error.errno or 0)
            return
        self._asked, self._asked_s = pid, time.monotonic()

    def _has_answered(self, pid: int) -> bool:
        now_s, size = time.monotonic(), os.fstat(self._file).st_size
        if size > self._size:
            self._size, self._grew_s = size, now_s
        is_complete = self._size > self._start and now_s - self._grew_s >= _COMPLETE_AFTER_S
        if not is_complete and now_s - self._asked_s <= ANSWER_WITHIN_S:
            return False
        text = os.pread(self._file, self._size - self._start, self._start).decode(errors="replace")
        if text:
            self.stacks[pid] = text
        else:
            self.silent[pid] = f"no answer in {ANSWER_WITHIN_S:g} s"
        return True
