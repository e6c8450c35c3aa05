"""Memory of this process while it tokenizes."""

from __future__ import annotations

import os
import time
from typing import Self

from memory.process import read_process

_LOOK_S = 0.2


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
