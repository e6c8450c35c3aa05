"""The reader over memory maps: a batch is one gather by NumPy; pages are the kernel's page cache."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.reader import Reader, elements
from data_loading.readers.residency import Residency
from data_loading.readers.unchanged import Unchanged

_PAGE = mmap.PAGESIZE


class MappedReader(Reader):
    """Reads what is mapped, or lies in memory.

    at_random: the kernel is told not to read ahead around what is asked for, which for windows in a
    shuffled order reads a cold disk a hundred times over (madvise(2), MADV_RANDOM). max_resident_bytes:
    when the process's file pages grow beyond it, all pages of the maps are unmapped (MADV_DONTNEED): they
    stay in the page cache, and leave RSS. None: no bound.
    """

    name = "mmap"

    def __init__(
        self, extents: Extents, *, at_random: bool = False, max_resident_bytes: int | None = None
    ) -> None:
        super().__init__(extents)
        self._maps = [map_of(buffer) for buffer in extents.buffers]
        self._unchanged = Unchanged(extents.paths)
        self._spans_of, self._spans = (-1, 0), np.empty(0, np.void)
        if at_random:
            for mapped in filter(None, self._maps):
                mapped.madvise(mmap.MADV_RANDOM)
        self._residency = Residency(max_resident_bytes) if max_resident_bytes is not None else None

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        found = super().gather(starts, width)
        if self._residency is not None and self._residency.is_exceeded(len(starts), found.nbytes):
            self.release()
        return found

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        size = self.extents.dtype.itemsize
        buffers, offsets, counts = self._cut_at_runs(starts, lengths)
        if (offsets % size).any():
            return super().gather_spans(starts, lengths)
        read = np.unique(buffers).tolist()
        if len(read) == 1:
            found = self._tokens(read[0])[elements(offsets // size, counts)]
        else:
            found = np.empty(lengths.sum(), self.extents.dtype)
            places = np.cumsum(counts) - counts
            for buffer in read:
                here = np.flatnonzero(buffers == buffer)
                tokens = self._tokens(buffer)[elements(offsets[here] // size, counts[here])]
                found[elements(places[here], counts[here])] = tokens
        if self._residency is not None and self._residency.is_exceeded(len(starts), found.nbytes):
            self.release()
        return found

    def _tokens(self, buffer: int) -> np.ndarray:
        """A buffer as tokens; what is behind the last whole one is left out."""
        self._unchanged.check(buffer)
        data = self.extents.buffers[buffer]
        return data[: len(data) - len(data) % self.extents.dtype.itemsize].view(self.extents.dtype)

    def release(self) -> None:
        """Unmap the pages that were read; the next read maps them again from the page cache."""
        for mapped in filter(None, self._maps):
            mapped.madvise(mmap.MADV_DONTNEED)

    def will_need(self, starts: np.ndarray, width: int) -> None:
        size = self.extents.dtype.itemsize
        for buffer, offset in self._places(starts):
            mapped = self._maps[buffer]
            if mapped is not None:
                # A map begins at a page of its file, the buffer somewhere in that page.
                at = offset + self.extents.file_offset_bytes[buffer] % _PAGE
                mapped.madvise(mmap.MADV_WILLNEED, at // _PAGE * _PAGE, at % _PAGE + width * size)

    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        self._unchanged.check(buffer)
        if self._spans_of != (buffer, length_bytes):  # to make it costs a tenth of a batch
            self._spans_of = buffer, length_bytes
            self._spans = spans(self.extents.buffers[buffer], length_bytes)
        return self._spans[offsets_bytes]

    def _copy(self, buffer: int, offset_bytes: int, into: np.ndarray) -> None:
        self._unchanged.check(buffer)
        into[:] = self.extents.buffers[buffer][offset_bytes : offset_bytes + len(into)]


def spans(data: np.ndarray, length_bytes: int) -> np.ndarray:
    """A span at every byte, overlapping, not copied. An opaque element each: NumPy takes it by memcpy."""
    return np.ndarray(
        shape=(len(data) - length_bytes + 1,),
        dtype=np.dtype((np.void, length_bytes)),
        buffer=data,
        strides=(1,),
    )


def map_of(buffer: np.ndarray) -> mmap.mmap | None:
    """The memory map that an array is a view of; None where it lies in memory."""
    base: Any = buffer
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None
