"""What the whole job holds, this process and its children, looked at while it works."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from memory import format_bytes
from memory.process import Process, read_descendants, read_process

_LOOK_S = 0.5


@dataclass(frozen=True)
class Held:
    """Anonymous memory of the parent and of its `workers` together, at one moment."""

    main_bytes: int
    workers_bytes: int = 0
    workers: int = 0

    @property
    def total_bytes(self) -> int:
        return self.main_bytes + self.workers_bytes

    def __str__(self) -> str:
        """`160 MB + 2 workers 410 MB`."""
        own = format_bytes(self.main_bytes)
        if not self.workers:
            return own
        return f"{own} + {self.workers} worker{'s' * (self.workers > 1)} {format_bytes(self.workers_bytes)}"


class JobMemory:
    """While the block runs, looks twice a second, from a thread of its own (0.2 ms each).

    now: as last seen; None where the system does not tell. peak: the most so far.
    """

    def __init__(self) -> None:
        self.now: Held | None = None
        self.peak: Held | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="job_memory", daemon=True)

    @property
    def peak_bytes(self) -> int | None:
        return None if self.peak is None else self.peak.total_bytes

    def look(self) -> None:
        """Once, now."""
        main = read_process(os.getpid())
        if main is None or _held(main) is None:
            return
        children = [held for child in read_descendants(main) if (held := _held(child)) is not None]
        self.now = Held(_held(main) or 0, sum(children), len(children))
        if self.peak is None or self.now.total_bytes > self.peak.total_bytes:
            self.peak = self.now

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.look()

    def __enter__(self) -> Self:
        self.look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.look()


def _held(process: Process) -> int | None:
    return process.rss_bytes if process.anon_bytes is None else process.anon_bytes
