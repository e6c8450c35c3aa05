"""Reader: the interface of all readers, and the class that cuts spans of tokens into runs of bytes."""

from __future__ import annotations

import abc
from typing import ClassVar

import numpy as np

from data_loading.readers.extents import Extents


def elements(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return `(sum(lengths),)`: the numbers from each start on, one span after the other."""
    found: np.ndarray = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    found += np.arange(len(found))
    return found


class Reader(abc.ABC):
    """Reads spans of a set's tokens. Kinds differ in where the bytes come from, never in their values."""

    name: str
    is_here: ClassVar[bool] = True
    """Whether the tokens are on this machine; False: more of them per read means a longer wait."""

    def __init__(self, extents: Extents) -> None:
        self.extents = extents

    @abc.abstractmethod
    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        """Return `(len(starts), width)` tokens in their own dtype: `width` from each start (int64), in order.

        Raises:
            IndexError: a span is not inside the set.
        """

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return `(sum(lengths),)` tokens: `lengths` (int64, at least 1) from each start, in this order.

        Raises:
            IndexError: a span is not inside the set.
        """
        raise NotImplementedError(f"reader {self.name} reads spans of one length")

    @abc.abstractmethod
    def will_need(self, starts: np.ndarray, width: int) -> None:
        """Hint that these spans are read soon: the kernel can begin to read them from disk."""

    def reached(self, epoch: int, position: int) -> None:  # noqa: B027  only readers that fetch use it
        """Note the position of the stream, for readers that fetch what comes next."""


class RunReader(Reader):
    """Reads the runs of its extents. Kinds differ in how they copy bytes of a buffer."""

    def __init__(self, extents: Extents, *, gives_hints: bool = True) -> None:
        """Raises UserError: a file is shorter than what is mapped of it."""
        super().__init__(extents)
        extents.check_sizes()
        self._gives_hints = gives_hints

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        extents, size = self.extents, self.extents.dtype.itemsize
        if len(starts) == 0:
            return np.empty((0, width), extents.dtype)
        self._check_inside(int(starts.min()), int(starts.max()) + width)
        if len(extents.buffer) == 1:
            offsets = starts * size + int(extents.offset_bytes[0])
            found = self._read(int(extents.buffer[0]), offsets, width * size)
            return found.view(extents.dtype).reshape(len(starts), width)
        found = np.empty(len(starts), (np.void, width * size))
        runs = np.searchsorted(extents.first, starts, side="right") - 1
        inside = starts + width <= extents.first[runs + 1]
        buffers, offsets = extents.buffer[runs], self._offsets(runs, starts)
        for buffer in np.unique(buffers[inside]).tolist():
            here = inside & (buffers == buffer)
            found[here] = self._read(buffer, offsets[here], width * size)
        across = np.flatnonzero(~inside)
        if len(across):
            found[across] = self.gather_spans(starts[across], np.full(len(across), width)).view(found.dtype)
        return found.view(extents.dtype).reshape(len(starts), width)

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        found = np.empty(lengths.sum(), self.extents.dtype)
        if len(found) == 0:
            return found
        buffers, offsets, nbytes = self._cut_at_runs(starts, lengths)
        # Pieces that touch, in the file as in the result, are one read.
        touches = (offsets[1:] == (offsets + nbytes)[:-1]) & (buffers[1:] == buffers[:-1])
        first = np.flatnonzero(np.append(True, ~touches))
        buffers, offsets, nbytes = buffers[first], offsets[first], np.add.reduceat(nbytes, first)
        places = np.cumsum(nbytes) - nbytes
        order, data = np.lexsort((offsets, buffers)), found.view(np.uint8).data
        pieces = (column[order].tolist() for column in (buffers, offsets, places, nbytes))
        for buffer, offset, place, length in zip(*pieces, strict=True):
            self._copy(buffer, offset, data[place : place + length])
        return found

    def will_need(self, starts: np.ndarray, width: int) -> None:
        if self._gives_hints:
            runs = np.searchsorted(self.extents.first, starts, side="right") - 1
            offsets = self._offsets(runs, starts).tolist()
            for buffer, offset in zip(self.extents.buffer[runs].tolist(), offsets, strict=True):
                self._hint(buffer, offset, width * self.extents.dtype.itemsize)

    @abc.abstractmethod
    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        """Return `(len(offsets_bytes),)` of void, `length_bytes` each, from these places of one buffer."""

    def _copy(self, buffer: int, offset_bytes: int, into: memoryview) -> None:
        """Fill `into`, of bytes, from this place of one buffer."""
        into[:] = self._read(buffer, np.array([offset_bytes]), len(into)).view(np.uint8).data

    @abc.abstractmethod
    def _hint(self, buffer: int, offset_bytes: int, length_bytes: int) -> None:
        """Give the kernel a hint that these bytes of one buffer are read soon."""

    def _check_inside(self, first: int, last: int) -> None:
        if first < 0 or last > self.extents.tokens:
            raise IndexError(f"tokens {first} to {last} of {self.extents.tokens:,} were requested")

    def _offsets(self, runs: np.ndarray, starts: np.ndarray) -> np.ndarray:
        inside = (starts - self.extents.first[runs]) * self.extents.dtype.itemsize
        offsets: np.ndarray = self.extents.offset_bytes[runs] + inside
        return offsets

    def _cut_at_runs(self, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return (buffer, byte offset, bytes) of the pieces of spans that are in one run each, in order."""
        extents, ends = self.extents, starts + lengths
        self._check_inside(int(starts.min()), int(ends.max()))
        first = np.searchsorted(extents.first, starts, side="right") - 1
        parts = np.searchsorted(extents.first, ends, side="left") - first
        if parts.max() > 1:
            starts, ends = np.repeat(starts, parts), np.repeat(ends, parts)
            first = elements(first, parts)
            starts = np.maximum(starts, extents.first[first])
            ends = np.minimum(ends, extents.first[first + 1])
        return extents.buffer[first], self._offsets(first, starts), (ends - starts) * extents.dtype.itemsize
