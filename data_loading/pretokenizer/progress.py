"""Progress of tokenizing: a moving line on a terminal, a line a minute in a log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import IO, Self

from experiment_utils.display import ProgressLine
from experiment_utils.quantities import format_count, format_duration
from memory import format_bytes
from memory.measure.process import read_process

_TERMINAL_EVERY_S = 0.2
_LOG_FIRST_S = 5.0
_LOG_EVERY_S = 60.0
_LOOK_S = 0.2


class Meter:
    """Writes a line of progress when it is due.

    Args:
        total_bytes: Size of the text; None: not known.
        log: Gets the lines if there is no terminal.
        stream: Terminal whose line moves; None: lines go to `log`, the first one soon.
        before: Bytes and tokens of an earlier attempt. They count as done, but not for the rate.
        memory: Returns the bytes that the process holds now.
        goal_tokens: Tokens at which the job ends, if it ends before the text.
    """

    def __init__(
        self,
        total_bytes: int | None,
        log: Callable[[str], None],
        stream: IO[str] | None,
        before: tuple[int, int] = (0, 0),
        memory: Callable[[], int | None] = lambda: None,
        goal_tokens: int | None = None,
    ) -> None:
        self._total, self._log, self._goal = total_bytes, log, goal_tokens
        self._progress = ProgressLine(stream) if stream else None
        self._before_bytes, self._before_tokens = before
        self._memory = memory
        self._started = time.monotonic()
        self._due = self._started + (_TERMINAL_EVERY_S if stream else _LOG_FIRST_S)

    def update(self, done_bytes: int, tokens: int) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + (_TERMINAL_EVERY_S if self._progress else _LOG_EVERY_S)
        line, held = self._line(done_bytes, tokens, now - self._started), self._memory()
        with_memory = line if held is None else f"{line}, memory {format_bytes(held)}"
        if self._progress is None:
            self._log(with_memory)
        else:
            self._progress.show(with_memory if len(with_memory) <= self._progress.columns else line)

    def _line(self, done: int, tokens: int, seconds: float) -> str:
        rate = (done - self._before_bytes) / seconds if seconds else 0.0
        so_far = f"{format_count(tokens)} tokens, {rate / 1e6:.1f} MB/s"
        if self._total is not None:
            share = done / self._total if self._total else 1.0
            left = _time(self._total - done, rate)
            return f"{share:4.0%} of {self._total / 1e6:,.1f} MB, {so_far}, {left} left"
        if self._goal is None:
            return f"{done / 1e6:,.1f} MB, {so_far}"
        left = _time(self._goal - tokens, (tokens - self._before_tokens) / seconds if seconds else 0.0)
        share = min(1.0, tokens / self._goal)
        return (
            f"{share:4.0%} of {format_count(self._goal)} tokens, {done / 1e6:,.1f} MB, {so_far}, {left} left"
        )

    def close(self) -> None:
        """Remove the progress line."""
        if self._progress is not None:
            self._progress.clear()


def _time(left: float, rate: float) -> str:
    return format_duration(max(0.0, left) / rate) if rate else "unknown"


class JobMemory:
    """Anonymous memory of this process, in bytes.

    Attributes:
        now: At the last look; None if the system does not report it.
        peak: The most that a look has found.
    """

    def __init__(self) -> None:
        self.now: int | None = None
        self.peak: int | None = None
        self._due = 0.0

    def look(self) -> None:
        """Read it, unless the last look was less than 0.2 s ago."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _LOOK_S
        found = read_process(os.getpid())
        held = None if found is None else found.rss_bytes if found.anon_bytes is None else found.anon_bytes
        if held is not None:
            self.now, self.peak = held, max(held, self.peak or 0)

    def __enter__(self) -> Self:
        self.look()
        return self

    def __exit__(self, *error: object) -> None:
        self._due = 0.0
        self.look()
