"""Whose children are looked for: in calm seldom of those that had none, since each list is a file to read."""

from __future__ import annotations

from memory.process import Process, children_of

LOOKS_IN_CALM = 4
"""A process without children is asked for them at one of so many looks, a second apart."""


class Descent:
    """Of one job, from look to look."""

    def __init__(self) -> None:
        self._looks = 0
        self._childless: set[int] = set()

    def begin(self, *, is_calm: bool) -> None:
        """A look begins. is_calm: the one before found nothing that makes haste."""
        self._looks += 1
        if not is_calm:
            self._childless.clear()

    def children(self, process: Process, proc: str) -> list[int]:
        """As `children_of`; in calm an empty list may be some looks old."""
        pid = process.pid
        if pid in self._childless and (self._looks + pid) % LOOKS_IN_CALM:
            return []
        found = children_of(process, proc)
        if found:
            self._childless.discard(pid)
        else:
            self._childless.add(pid)
        return found
