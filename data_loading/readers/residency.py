"""A bound on what memory maps add to RSS: file pages of this process, counted by the kernel."""

from __future__ import annotations

import mmap
import os

_FAULT_BYTES = 2 << 20
"""What one fault may map at most: the pages around it where they are in the page cache, which the kernel
keeps in folios of up to 2 MB."""


class Residency:
    """Watches RssFile + RssShmem of this process (/proc/self/statm, proc(5)) against a bound.

    max_bytes: may be added by maps to what there was at the beginning.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._base_bytes = _file_pages_bytes()

    def spans_at_once(self, span_bytes: int) -> int:
        """How many may be read between two looks: what they map is at most a quarter of the bound, which is
        beyond where it counts as exceeded. At least 1.
        """
        return max(1, self._max_bytes // 4 // (_FAULT_BYTES + span_bytes))

    @property
    def is_exceeded(self) -> bool:
        """Whether three quarters of the bound are reached."""
        return _file_pages_bytes() - self._base_bytes > self._max_bytes * 3 // 4


def _file_pages_bytes() -> int:
    descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 256).split()[2]) * mmap.PAGESIZE
    finally:
        os.close(descriptor)
