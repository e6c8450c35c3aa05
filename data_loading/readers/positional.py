"""The reader by pread(2): nothing is mapped, RSS stays flat, errors are errors and no signal."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.mapped import spans
from data_loading.readers.reader import Reader
from data_loading.readers.unchanged import Unchanged
from experiment_utils.errors import UserError

_MERGED_BYTES = 4 << 20


class PositionalReader(Reader):
    """Reads spans in the order of the file; neighbours that touch are one read.

    at_random: the kernel reads no more than it is asked for (posix_fadvise(2), POSIX_FADV_RANDOM).
    reads_around: that is left to the kernel, which is told of nothing.
    """

    name = "pread"

    def __init__(self, extents: Extents, *, at_random: bool = False, reads_around: bool = False) -> None:
        super().__init__(extents)
        self._files: dict[int, int] = {}
        self._at_random, self._reads_around = at_random and not reads_around, reads_around
        self._unchanged = Unchanged(extents.paths)

    def will_need(self, starts: np.ndarray, width: int) -> None:
        if self._reads_around:
            return
        length = width * self.extents.dtype.itemsize
        for buffer, offset in self._places(starts):
            at = offset + self.extents.file_offset_bytes[buffer]
            os.posix_fadvise(self._file(buffer), at, length, os.POSIX_FADV_WILLNEED)

    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        self._unchanged.check(buffer)
        found = np.empty(len(offsets_bytes), np.dtype((np.void, length_bytes)))
        order = np.argsort(offsets_bytes, kind="stable")
        offsets = offsets_bytes[order]
        behind = offsets[1:] > offsets[:-1] + length_bytes
        if behind.all():
            rows = memoryview(found.view(np.uint8).data)
            for row, offset in zip(order.tolist(), offsets.tolist(), strict=True):
                self._fill(buffer, rows[row * length_bytes : (row + 1) * length_bytes], offset)
            return found
        # Spans that touch are one read, unless that has become long.
        behind |= np.diff((offsets - offsets[0]) // _MERGED_BYTES) > 0
        borders = [0, *(np.flatnonzero(behind) + 1).tolist(), len(offsets)]
        for first, last in itertools.pairwise(borders):
            start = int(offsets[first])
            data = np.empty(int(offsets[last - 1]) + length_bytes - start, np.uint8)
            self._fill(buffer, data.data, start)
            found[order[first:last]] = spans(data, length_bytes)[offsets[first:last] - start]
        return found

    def _copy(self, buffer: int, offset_bytes: int, into: np.ndarray) -> None:
        self._unchanged.check(buffer)
        self._fill(buffer, into.data, offset_bytes)

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        size = self.extents.dtype.itemsize
        buffers, offsets, counts = self._cut_at_runs(starts, lengths)
        found = np.empty(lengths.sum(), self.extents.dtype)
        if len(offsets) == 0:
            return found
        # Spans that touch, in the file as in the order asked for, are one read.
        ends = offsets + counts * size
        begins = np.append(True, (offsets[1:] != ends[:-1]) | (buffers[1:] != buffers[:-1]))
        first = np.flatnonzero(begins)
        buffers, offsets, nbytes = buffers[first], offsets[first], np.add.reduceat(counts, first) * size
        for buffer in np.unique(buffers).tolist():
            self._unchanged.check(buffer)
        places = np.cumsum(nbytes) - nbytes
        order = np.lexsort((offsets, buffers))
        data = memoryview(found.view(np.uint8).data)
        spans_in_order = (column[order].tolist() for column in (buffers, offsets, places, nbytes))
        for buffer, offset, place, length in zip(*spans_in_order, strict=True):
            self._fill(buffer, data[place : place + length], offset)
        return found

    def _fill(self, buffer: int, data: memoryview, start: int) -> None:
        file, at, done = self._file(buffer), start + self.extents.file_offset_bytes[buffer], 0
        while done < len(data):
            try:
                count = os.preadv(file, [data[done:]], at + done)
            except OSError as error:
                raise UserError(
                    f"{self._path(buffer)} cannot be read at byte {at + done:,}: {error.strerror}",
                    code="file-unreadable",
                ) from error
            if count == 0:
                raise UserError(
                    f"{self._path(buffer)} ends at byte {at + done:,} and should go on to "
                    f"{at + len(data):,}: it was truncated while it was read. Restore it, and type the same "
                    "command again",
                    code="truncated-while-read",
                )
            done += count

    def _file(self, buffer: int) -> int:
        if buffer not in self._files:
            self._files[buffer] = descriptor = self._unchanged.open(buffer)
            if self._at_random:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return self._files[buffer]

    def _path(self, buffer: int) -> Path:
        path = self.extents.paths[buffer]
        if path is None:
            raise UserError(
                "reader=pread: these tokens are in memory. Take dataset.reader away", code="reader-needs-file"
            )
        return path

    def close(self) -> None:
        """Give the descriptors back."""
        while self._files:
            os.close(self._files.popitem()[1])

    def __del__(self) -> None:
        self.close()
