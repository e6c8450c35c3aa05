"""From outside: processes are asked for their Python stacks, one after another, without waiting for any.

Only one that has a handler for the signal is asked: to another it would be deadly. Whether it has stands in
SigCgt of /proc/PID/status (proc(5)).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from experiment_utils.safe_read import plain_only
from memory.files.procfs import list_folder, read_file

STACKS_SIGNAL: int | None = signal.SIGRTMIN + 11 if hasattr(signal, "SIGRTMIN") else None
AT_ONCE_SIGNAL: int | None = signal.SIGRTMIN + 13 if hasattr(signal, "SIGRTMIN") else None
"""For one that does not come to answering the first: faulthandler answers from within, of the main thread."""
ALL_AT_ONCE_SIGNAL: int | None = signal.SIGRTMIN + 14 if hasattr(signal, "SIGRTMIN") else None
"""The same of all threads, where the others stand still: frames of one that runs change as they are read."""
LARGEST_SIGNAL: int | None = signal.SIGRTMIN + 12 if hasattr(signal, "SIGRTMIN") else None
OUTPUT_VARIABLE, ATTEMPT_VARIABLE = "HIGHWATER_OUTPUT", "HIGHWATER_ATTEMPT"
"""Set by the supervisor, for a command that knows nothing else of it."""


def hidden_path(folder: str, attempt: int) -> str:
    """Where answers go."""
    return os.path.join(folder, f".memory.stacks.{attempt}.txt")


def shown_path(folder: str, attempt: int, suffix: str = "txt") -> str:
    """What that file is called from the first shortage on; `json`: of the largest objects."""
    return os.path.join(folder, f"memory.blackbox.{attempt}.{suffix}")


_OF_MAIN = "Stack ("
"""So begins faulthandler's answer of one thread alone."""
ANSWER_WITHIN_S = 2.0
_INSISTS_AFTER_S = 0.2
_SETTLES_S = 0.02
"""An answer is a few milliseconds of short writes; it is whole when the file has not grown for so long, and
who wrote is out of the handler: on a busy machine it may wait for a core between two of them.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one process answered. text: its stacks; None: `why` not."""

    pid: int
    text: str | None = None
    why: str = ""


def has_handler(pid: int, number: int | None, proc: str = "/proc") -> bool:
    """Whether the process handles the signal."""
    return _is_in(read_file(f"{proc}/{pid}/status") or b"", b"SigCgt", number)


def _is_in_handler(pid: int, number: int, proc: str = "/proc") -> bool:
    """Whether the signal still waits for the process, or is blocked in its main thread, as in its handler."""
    status = read_file(f"{proc}/{pid}/status") or b""
    return any(_is_in(status, mask, number) for mask in (b"ShdPnd", b"SigPnd", b"SigBlk"))


def _turns_of_others(pid: int, proc: str = "/proc") -> dict[str, bytes]:
    """Of each thread but the main one how often it got a core, and left it; empty of one that runs."""
    statuses = {
        thread: read_file(f"{proc}/{pid}/task/{thread}/status") or b""
        for thread in list_folder(f"{proc}/{pid}/task")
        if thread != str(pid)
    }
    return {
        thread: b"" if b"\nState:\tR" in status else status.partition(b"\nvoluntary_ctxt_switches")[2]
        for thread, status in statuses.items()
    }


def _is_in(status: bytes, mask: bytes, number: int | None) -> bool:
    """Whether a mask of /proc/PID/status has the signal."""
    _, _, after = status.partition(b"\n" + mask + b":\t")
    try:
        found = int(after.split(None, 1)[0], 16)
    except (ValueError, IndexError):
        return False
    return number is not None and bool(found >> (number - 1) & 1)


class Asking:
    """A round of questions. Call `step` every few milliseconds until it returns True.

    answers: so far, in order of the question.
    """

    def __init__(self, path: str, pids: list[tuple[int, str]], number: int) -> None:
        """path: where answers are appended. pids: with a heading that is written before each answer.

        Raises:
            OSError: there is no such file: nobody there would answer.
        """
        self._file = plain_only(path, os.O_RDWR | os.O_APPEND)
        self._waiting, self._number = list(pids), number
        self._asked: int | None = None
        self._turns: dict[str, bytes] = {}
        self._insisted_by: int | None = None
        self._from = self._size = 0
        self._asked_s = self._grew_s = 0.0
        self.answers: list[Answer] = []

    def step(self) -> bool:
        """Go on; returns whether all have been asked and have answered, or had their time."""
        if self._asked is not None and not self._has_answered():
            return False
        while self._waiting and self._asked is None:
            pid, heading = self._waiting.pop(0)
            self._ask(pid, heading)
        if self._asked is None and self._file >= 0:
            os.close(self._file)
            self._file = -1
        return self._asked is None

    def _ask(self, pid: int, heading: str) -> None:
        if not has_handler(pid, self._number):
            self.answers.append(
                Answer(pid, why="its program does not answer (memory.record.black_box.install makes it)")
            )
            return
        try:
            os.write(self._file, f"\n{heading}\n".encode())
            self._from = self._size = os.fstat(self._file).st_size
            os.kill(pid, self._number)
        except OSError as error:
            self.answers.append(Answer(pid, why=os.strerror(error.errno or 0)))
            return
        self._asked, self._asked_s, self._insisted_by = pid, time.monotonic(), None
        self._turns = _turns_of_others(pid)

    def _insist(self, pid: int) -> None:
        """Its main thread is in a long call, and comes to no answer of its own."""
        now = _turns_of_others(pid)
        stand_still = now == self._turns and all(now.values())
        self._insisted_by = ALL_AT_ONCE_SIGNAL if stand_still else AT_ONCE_SIGNAL
        if self._insisted_by is not None and has_handler(pid, self._insisted_by):
            with suppress(OSError):
                os.kill(pid, self._insisted_by)

    def _has_answered(self) -> bool:
        assert self._asked is not None
        now_s, size = time.monotonic(), os.fstat(self._file).st_size
        if size > self._size:
            self._size, self._grew_s = size, now_s
        has_time = self._insisted_by is not None or now_s - self._asked_s <= _INSISTS_AFTER_S
        if size == self._from and not has_time and not _is_in_handler(self._asked, self._number):
            self._insist(self._asked)
        has_settled = self._size > self._from and now_s - self._grew_s >= _SETTLES_S
        numbers = [one for one in (self._number, self._insisted_by) if one]
        is_whole = has_settled and not any(_is_in_handler(self._asked, one) for one in numbers)
        is_late = now_s - self._asked_s > ANSWER_WITHIN_S
        if not is_whole and not is_late:
            return False
        text = os.pread(self._file, self._size - self._from, self._from).decode(errors="replace")
        if self._turns and text.startswith(_OF_MAIN):
            of_others = f"Its other threads ({len(self._turns)}) were not asked: not all of them stand still."
            with suppress(OSError):
                os.write(self._file, f"{of_others}\n".encode())
            text = f"{of_others}\n\n{text}"
        self.answers.append(
            Answer(self._asked, text)
            if text
            else Answer(self._asked, why=f"no answer in {ANSWER_WITHIN_S:g} s")
        )
        self._asked = None
        return True
