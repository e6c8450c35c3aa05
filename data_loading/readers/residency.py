"""A bound on what memory maps add to RSS: file pages of this process, counted by the kernel."""

from __future__ import annotations

import mmap
import os

_FAULT_BYTES = 64 << 10
"""Pages around a fault are mapped with it where they are in the page cache (fault-around, 64 KB)."""


class Residency:
    """Watches RssFile + RssShmem of this process (/proc/self/statm, proc(5)) against a bound.

    max_bytes: may be added by maps to what there was at the beginning. Looked at when what was read since
    may have added an eighth of it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._base_bytes = _file_pages_bytes()
        self._may_have_grown = 0

    def is_exceeded(self, spans: int, nbytes: int) -> bool:
        """Whether the bound is reached, or may be with the next eighth; spans, nbytes: read just now."""
        self._may_have_grown += spans * _FAULT_BYTES + nbytes
        if self._may_have_grown < self._max_bytes // 8:
            return False
        self._may_have_grown = 0
        return _file_pages_bytes() - self._base_bytes > self._max_bytes * 3 // 4


def _file_pages_bytes() -> int:
    descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 256).split()[2]) * mmap.PAGESIZE
    finally:
        os.close(descriptor)
