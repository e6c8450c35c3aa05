"""The reader over memory maps: a batch is one gather by NumPy; pages are the kernel's page cache."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.reader import Reader, elements
from data_loading.readers.residency import Residency
from data_loading.readers.torn import TornMaps
from data_loading.readers.unchanged import Unchanged
from experiment_utils.errors import UserError

_PAGE = mmap.PAGESIZE


class MappedReader(Reader):
    """Reads what is mapped, or lies in memory.

    at_random: the kernel is told not to read ahead around what is asked for, which for windows in a
    shuffled order reads a cold disk a hundred times over (madvise(2), MADV_RANDOM). reads_around: that is
    left to the kernel, which is told of nothing. max_resident_bytes: when the process's file pages grow
    beyond it, all pages of the maps are unmapped (MADV_DONTNEED): they stay in the page cache, and leave
    RSS. None: no bound.
    """

    name = "mmap"

    def __init__(
        self,
        extents: Extents,
        *,
        at_random: bool = False,
        reads_around: bool = False,
        max_resident_bytes: int | None = None,
    ) -> None:
        super().__init__(extents)
        self._maps = [map_of(buffer) for buffer in extents.buffers]
        self._unchanged, self._reads_around = Unchanged(extents.paths), reads_around
        self._torn = TornMaps(extents.buffers, self._maps, extents.file_offset_bytes)
        self._spans_of, self._spans = (-1, 0), np.empty(0, np.void)
        if at_random and not reads_around:
            for mapped in filter(None, self._maps):
                mapped.madvise(mmap.MADV_RANDOM)
        self._residency = Residency(max_resident_bytes) if max_resident_bytes is not None else None

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        if self._residency is None:
            return super().gather(starts, width)
        size = self.extents.dtype.itemsize
        found = np.empty((len(starts), width), self.extents.dtype)
        for part in self._parts(len(starts), width * size):
            found[part] = super().gather(starts[part], width)
            self._release_if_exceeded()
        return found

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        if self._residency is None:
            return self._spans_at(starts, lengths)
        longest = int(lengths.max(initial=0)) * self.extents.dtype.itemsize
        found, done = np.empty(lengths.sum(), self.extents.dtype), 0
        for part in self._parts(len(starts), longest):
            tokens = self._spans_at(starts[part], lengths[part])
            found[done : done + len(tokens)] = tokens
            done += len(tokens)
            self._release_if_exceeded()
        return found

    def _parts(self, count: int, span_bytes: int) -> Iterator[slice]:
        """Of so many spans, those that are read between two looks at RSS."""
        assert self._residency is not None
        at_once = self._residency.spans_at_once(span_bytes)
        return (slice(first, first + at_once) for first in range(0, count, at_once))

    def _release_if_exceeded(self) -> None:
        if self._residency is not None and self._residency.is_exceeded:
            self.release()

    def _spans_at(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        size = self.extents.dtype.itemsize
        buffers, offsets, counts = self._cut_at_runs(starts, lengths)
        if (offsets % size).any():
            return super().gather_spans(starts, lengths)
        read = np.unique(buffers).tolist()
        if len(read) == 1:
            found = self._tokens(read[0], elements(offsets // size, counts))
        else:
            found = np.empty(lengths.sum(), self.extents.dtype)
            places = np.cumsum(counts) - counts
            for buffer in read:
                here = np.flatnonzero(buffers == buffer)
                tokens = self._tokens(buffer, elements(offsets[here] // size, counts[here]))
                found[elements(places[here], counts[here])] = tokens
        return found

    def _tokens(self, buffer: int, places: np.ndarray) -> np.ndarray:
        """Tokens of a buffer, by their number in it."""
        data = self.extents.buffers[buffer]
        tokens = data[: len(data) - len(data) % self.extents.dtype.itemsize].view(self.extents.dtype)
        with self._torn:
            found: np.ndarray = tokens[places]
        self._check(buffer)
        return found

    def release(self) -> None:
        """Unmap the pages that were read; the next read maps them again from the page cache."""
        for mapped in filter(None, self._maps):
            mapped.madvise(mmap.MADV_DONTNEED)

    def will_need(self, starts: np.ndarray, width: int) -> None:
        if self._reads_around:
            return
        size = self.extents.dtype.itemsize
        for buffer, offset in self._places(starts):
            mapped = self._maps[buffer]
            if mapped is not None:
                # A map begins at a page of its file, the buffer somewhere in that page.
                at = offset + self.extents.file_offset_bytes[buffer] % _PAGE
                mapped.madvise(mmap.MADV_WILLNEED, at // _PAGE * _PAGE, at % _PAGE + width * size)

    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        if self._spans_of != (buffer, length_bytes):  # to make it costs a tenth of a batch
            self._spans_of = buffer, length_bytes
            self._spans = spans(self.extents.buffers[buffer], length_bytes)
        with self._torn:
            found = self._spans[offsets_bytes]
        self._check(buffer)
        return found

    def _copy(self, buffer: int, offset_bytes: int, into: np.ndarray) -> None:
        with self._torn:
            into[:] = self.extents.buffers[buffer][offset_bytes : offset_bytes + len(into)]
        self._check(buffer)

    def _check(self, buffer: int) -> None:
        """After a read, so that nothing is handed out of a file that has changed.

        Raises:
            UserError: it has; names both sides.
        """
        self._unchanged.check(buffer)
        if self._torn.is_torn:
            raise UserError(
                f"{self.extents.paths[buffer]} was truncated while it was read. Restore it, and type the "
                "same command again to go on from the last checkpoint",
                code="truncated-while-read",
            )


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
