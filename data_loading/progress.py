"""How far a tokenization is: one moving line on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO

from conf.quantities import format_count, format_duration

_TERMINAL_EVERY_S = 0.2
_LOG_EVERY_S = 30.0


class Progress:
    """Told of each block; writes when a line is due.

    stream: the terminal whose line moves; None: lines go to `log`.
    """

    def __init__(self, total_bytes: int, log: Callable[[str], None], stream: IO[str] | None) -> None:
        self._total, self._log, self._stream = total_bytes, log, stream
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
        rate = done / seconds if seconds else 0.0
        left = format_duration((self._total - done) / rate) if rate else "unknown"
        share = done / self._total if self._total else 1.0
        return (
            f"{share:4.0%} of {self._total / 1e6:,.1f} MB, {format_count(tokens)} tokens, "
            f"{rate / 1e6:.1f} MB/s, {left} left"
        )

    def close(self) -> None:
        """Take the moving line away."""
        if self._stream is not None and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
