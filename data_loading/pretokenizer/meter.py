"""How far a tokenization is: one moving line on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO

from conf.quantities import format_count, format_duration

_TERMINAL_EVERY_S = 0.2
_LOG_EVERY_S = 30.0


class Meter:
    """Told of each block; writes when a line is due.

    stream: the terminal whose line moves; None: lines go to `log`. before: bytes done by an earlier
    attempt, which count as done, not as work of this one.
    """

    def __init__(
        self, total_bytes: int | None, log: Callable[[str], None], stream: IO[str] | None, before: int = 0
    ) -> None:
        self._total, self._log, self._stream, self._before = total_bytes, log, stream, before
        self._started = self._last = time.monotonic()
        self._width = 0

    def update(self, done_bytes: int, tokens: int) -> None:
        now = time.monotonic()
        if now - self._last < (_TERMINAL_EVERY_S if self._stream else _LOG_EVERY_S):
            return
        self._last = now
        line = self._line(done_bytes, tokens, now - self._started)
        if self._stream is None:
            self._log(line)
            return
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def _line(self, done: int, tokens: int, seconds: float) -> str:
        rate = (done - self._before) / seconds if seconds else 0.0
        so_far = f"{format_count(tokens)} tokens, {rate / 1e6:.1f} MB/s"
        if self._total is None:
            return f"{done / 1e6:,.1f} MB, {so_far}"
        share = done / self._total if self._total else 1.0
        left = format_duration((self._total - done) / rate) if rate else "unknown"
        return f"{share:4.0%} of {self._total / 1e6:,.1f} MB, {so_far}, {left} left"

    def close(self) -> None:
        """Take the moving line away."""
        if self._stream is not None and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
