"""Spans of tokens out of runs: what all readers share."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from data_loading.readers.extents import Extents


def elements(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers from each start on, as many as its length says, one behind the other: `(sum(lengths),)`."""
    found: np.ndarray = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    found += np.arange(len(found))
    return found


class Reader(abc.ABC):
    """Reads spans of a set's tokens. Kinds differ in where the bytes come from, never in what they are."""

    name: str
    is_here: ClassVar[bool] = True
    """Whether the tokens are on this machine; False: more of them at once is more to wait for."""

    def __init__(self, extents: Extents) -> None:
        self.extents = extents
        self._only = int(extents.offset_bytes[0]) if len(extents.buffer) == 1 else None

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        """`(len(starts), width)` of the tokens' own dtype: from each start (int64) on, in this order.

        Raises:
            IndexError: a span that is not inside the set.
        """
        if len(starts) == 0:
            return np.empty((0, width), self.extents.dtype)
        if starts.min() < 0 or starts.max() + width > self.extents.tokens:
            raise IndexError(
                f"tokens {starts.min()} to {starts.max() + width} of {self.extents.tokens:,} were asked for"
            )
        size = self.extents.dtype.itemsize
        if self._only is not None:
            found = self._read(0, starts * size + self._only, width * size)
        else:
            found = self._from_runs(starts, width)
        return found.view(self.extents.dtype).reshape(len(starts), width)

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """`(sum(lengths),)` of the tokens' own dtype: from each start (int64) on so many (int64, at least 1),
        one span behind the other.

        Raises:
            IndexError: a span that is not inside the set.
        """
        found = np.empty(lengths.sum(), self.extents.dtype)
        places = np.cumsum(lengths) - lengths
        for length in np.unique(lengths).tolist():
            here = np.flatnonzero(lengths == length)
            found[places[here, None] + np.arange(length)] = self.gather(starts[here], length)
        return found

    def _cut_at_runs(self, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
        """(buffer, byte offset, tokens) of the parts of spans that lie in one run each, in their order.

        Raises:
            IndexError: a span that is not inside the set.
        """
        extents, ends = self.extents, starts + lengths
        if len(starts) and (starts.min() < 0 or ends.max() > extents.tokens):
            raise IndexError(f"tokens {starts.min()} to {ends.max()} of {extents.tokens:,} were asked for")
        size = extents.dtype.itemsize
        if self._only is not None:
            return np.zeros(len(starts), np.int64), starts * size + self._only, lengths
        first = np.searchsorted(extents.first, starts, side="right") - 1
        parts = np.searchsorted(extents.first, ends, side="left") - first
        if parts.max(initial=1) > 1:
            starts, ends = np.repeat(starts, parts), np.repeat(ends, parts)
            first = elements(first, parts)
            starts = np.maximum(starts, extents.first[first])
            ends = np.minimum(ends, extents.first[first + 1])
        offsets = extents.offset_bytes[first] + (starts - extents.first[first]) * size
        return extents.buffer[first], offsets, ends - starts

    def _from_runs(self, starts: np.ndarray, width: int) -> np.ndarray:
        """`(len(starts),)` of void: spans inside a run by one read for each buffer, others put together."""
        extents, size = self.extents, self.extents.dtype.itemsize
        found = np.empty(len(starts), (np.void, width * size))
        runs = np.searchsorted(extents.first, starts, side="right") - 1
        inside = starts + width <= extents.first[runs + 1]
        buffers = extents.buffer[runs]
        for buffer in np.unique(buffers[inside]):
            here = inside & (buffers == buffer)
            at = extents.offset_bytes[runs[here]] + (starts[here] - extents.first[runs[here]]) * size
            found[here] = self._read(int(buffer), at, width * size)
        rows = found.view(np.uint8).reshape(len(starts), width * size)
        for place in np.flatnonzero(~inside):
            self._across(rows[place], int(starts[place]), int(runs[place]))
        return found

    def _across(self, row: np.ndarray, start: int, run: int) -> None:
        """One span that goes on in the next runs, into a row of its bytes."""
        extents, size = self.extents, self.extents.dtype.itemsize
        done = 0
        while done < len(row):
            end = min(done + (int(extents.first[run + 1]) - start) * size, len(row))
            if end > done:
                at = int(extents.offset_bytes[run]) + (start - int(extents.first[run])) * size
                self._copy(int(extents.buffer[run]), at, row[done:end])
            start, run, done = start + (end - done) // size, run + 1, end

    @abc.abstractmethod
    def will_need(self, starts: np.ndarray, width: int) -> None:
        """Spans that are read soon: the kernel may begin to read them from disk."""

    def reached(self, epoch: int, position: int) -> None:  # noqa: B027  most have nothing to do
        """The stream stands there; for readers that fetch what comes next."""

    def _places(self, starts: np.ndarray) -> Iterator[tuple[int, int]]:
        """(buffer, byte offset) at which each span begins."""
        extents = self.extents
        runs = np.searchsorted(extents.first, starts, side="right") - 1
        offsets = extents.offset_bytes[runs] + (starts - extents.first[runs]) * extents.dtype.itemsize
        return zip(extents.buffer[runs].tolist(), offsets.tolist(), strict=True)

    @abc.abstractmethod
    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        """`(len(offsets_bytes),)` of void, `length_bytes` each, from these places of one buffer."""

    def _copy(self, buffer: int, offset_bytes: int, into: np.ndarray) -> None:
        """Fill `into`, 1-D uint8, from this place of one buffer."""
        into[:] = self._read(buffer, np.array([offset_bytes]), len(into)).view(np.uint8)
