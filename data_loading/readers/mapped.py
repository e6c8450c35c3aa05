"""The reader over memory maps: a batch is one gather by NumPy; pages are the kernel's page cache."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.reader import RunReader

_PAGE = mmap.PAGESIZE
_FAULT_BYTES = 2 << 20
"""Most that one fault maps: pages around it that are in the page cache, in folios of up to 2 MB."""


class MappedReader(RunReader):
    """Reads what is mapped, or in memory. A file that is truncated meanwhile ends in SIGBUS (mmap(2))."""

    name = "mmap"

    def __init__(
        self,
        extents: Extents,
        *,
        at_random: bool = False,
        gives_hints: bool = True,
        max_resident_bytes: int | None = None,
    ) -> None:
        """Prepare the maps.

        Args:
            at_random: The kernel does not read ahead around a page (madvise(2), MADV_RANDOM), which in a
                shuffled order reads a cold disk a hundred times over.
            gives_hints: `will_need` gives the kernel hints.
            max_resident_bytes: When file pages of the process (RssFile and RssShmem) have grown by three
                quarters of it, all pages of the maps leave RSS and stay in the page cache (MADV_DONTNEED).
        """
        super().__init__(extents, gives_hints=gives_hints)
        self._maps = [map_of(buffer) for buffer in extents.buffers]
        self._bytes = [buffer.data for buffer in extents.buffers]
        self._spans_of, self._spans = (-1, 0), np.empty(0, np.void)
        self._bound, self._since_look_bytes = max_resident_bytes, 0
        self._base_bytes = 0 if max_resident_bytes is None else _file_pages_bytes()
        if at_random:
            for mapped in filter(None, self._maps):
                mapped.madvise(mmap.MADV_RANDOM)

    def release(self) -> None:
        """Unmap the pages that were read; the next read maps them again from the page cache."""
        for mapped in filter(None, self._maps):
            mapped.madvise(mmap.MADV_DONTNEED)

    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        if self._spans_of != (buffer, length_bytes):  # making it takes a tenth of a batch
            self._spans_of = buffer, length_bytes
            self._spans = spans(self.extents.buffers[buffer], length_bytes)
        if self._bound is None:
            return self._spans[offsets_bytes]
        found = np.empty(len(offsets_bytes), self._spans.dtype)
        step = max(1, self._bound // 4 // (_FAULT_BYTES + length_bytes))
        for first in range(0, len(found), step):
            found[first : first + step] = self._spans[offsets_bytes[first : first + step]]
            self._keep_bound(self._bound, step * (_FAULT_BYTES + length_bytes))
        return found

    def _copy(self, buffer: int, offset_bytes: int, into: memoryview) -> None:
        into[:] = self._bytes[buffer][offset_bytes : offset_bytes + len(into)]
        if self._bound is not None:
            self._keep_bound(self._bound, _FAULT_BYTES + len(into))

    def _keep_bound(self, bound: int, mapped_bytes: int) -> None:
        """Release all pages if the bound is near. mapped_bytes: most that the last read has mapped."""
        self._since_look_bytes += mapped_bytes
        if self._since_look_bytes + _FAULT_BYTES >= bound // 4:
            self._since_look_bytes = 0
            if _file_pages_bytes() - self._base_bytes > bound * 3 // 4:
                self.release()

    def _hint(self, buffer: int, offset_bytes: int, length_bytes: int) -> None:
        mapped = self._maps[buffer]
        if mapped is not None:
            # A map begins at a page of its file, the buffer somewhere in that page.
            at = offset_bytes + self.extents.file_offset_bytes[buffer] % _PAGE
            mapped.madvise(mmap.MADV_WILLNEED, at // _PAGE * _PAGE, at % _PAGE + length_bytes)


def spans(data: np.ndarray, length_bytes: int) -> np.ndarray:
    """Return a view with a span at every byte, overlapping: opaque elements, which NumPy takes by memcpy."""
    shape, dtype = (len(data) - length_bytes + 1,), np.dtype((np.void, length_bytes))
    return np.ndarray(shape, dtype, buffer=data, strides=(1,))


def map_of(buffer: np.ndarray) -> mmap.mmap | None:
    """Return the memory map that an array is a view of; None if it is in memory."""
    base: Any = buffer
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _file_pages_bytes() -> int:
    """Return RssFile + RssShmem of this process (/proc/self/statm, proc(5))."""
    descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 256).split()[2]) * _PAGE
    finally:
        os.close(descriptor)
