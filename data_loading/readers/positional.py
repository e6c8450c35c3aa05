"""The reader by pread(2): nothing is mapped, RSS stays flat, errors are errors and no signal."""

from __future__ import annotations

import itertools
import os

import numpy as np

from data_loading.readers.extents import Extents, changed, file_state
from data_loading.readers.mapped import spans
from data_loading.readers.reader import RunReader
from experiment_utils.errors import UserError

_MERGED_BYTES = 4 << 20


class PositionalReader(RunReader):
    """Reads spans in the order of the file; neighbours that touch are one read."""

    name = "pread"

    def __init__(self, extents: Extents, *, at_random: bool = False, gives_hints: bool = True) -> None:
        """Note the states of the files, which are opened when they are first read.

        Args:
            at_random: The kernel reads no more than is requested (posix_fadvise(2), POSIX_FADV_RANDOM).
            gives_hints: `will_need` gives the kernel hints.
        """
        super().__init__(extents, gives_hints=gives_hints)
        self._descriptors: dict[int, int] = {}
        self._at_random = at_random
        self._before = [None if path is None else path.stat() for path in extents.paths]

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def __del__(self) -> None:
        if hasattr(self, "_descriptors"):
            self.close()

    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        found = np.empty(len(offsets_bytes), np.dtype((np.void, length_bytes)))
        order = np.argsort(offsets_bytes, kind="stable")
        offsets = offsets_bytes[order]
        begins = offsets[1:] > offsets[:-1] + length_bytes
        if begins.all():
            rows = found.view(np.uint8).data
            for row, offset in zip(order.tolist(), offsets.tolist(), strict=True):
                self._copy(buffer, offset, rows[row * length_bytes : (row + 1) * length_bytes])
            return found
        # Spans that touch are one read, unless it has become long.
        begins |= np.diff((offsets - offsets[0]) // _MERGED_BYTES) > 0
        borders = [0, *(np.flatnonzero(begins) + 1).tolist(), len(offsets)]
        for first, last in itertools.pairwise(borders):
            start = int(offsets[first])
            data = np.empty(int(offsets[last - 1]) + length_bytes - start, np.uint8)
            self._copy(buffer, start, data.data)
            found[order[first:last]] = spans(data, length_bytes)[offsets[first:last] - start]
        return found

    def _copy(self, buffer: int, offset_bytes: int, into: memoryview) -> None:
        file, at = self._file(buffer), offset_bytes + self.extents.file_offset_bytes[buffer]
        path, end = self.extents.paths[buffer], at + len(into)
        while len(into):
            try:
                count = os.preadv(file, [into], at)
            except OSError as error:
                raise UserError(
                    f"{path} cannot be read at byte {at:,}: {error.strerror}", code="file-unreadable"
                ) from error
            if count == 0:
                raise UserError(
                    f"{path} ends at byte {at:,}, expected {end:,}: it was truncated while it was read. "
                    "Restore it, and type the same command again",
                    code="truncated-while-read",
                )
            at, into = at + count, into[count:]

    def _hint(self, buffer: int, offset_bytes: int, length_bytes: int) -> None:
        at = offset_bytes + self.extents.file_offset_bytes[buffer]
        os.posix_fadvise(self._file(buffer), at, length_bytes, os.POSIX_FADV_WILLNEED)

    def _file(self, buffer: int) -> int:
        """Descriptor of a file. Raises UserError if it is not the file that the set was opened with."""
        if buffer not in self._descriptors:
            path, before = self.extents.paths[buffer], self._before[buffer]
            assert path is not None
            assert before is not None
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise UserError(
                    f"{path} cannot be read: {error.strerror}. Restore it", code="file-unreadable"
                ) from error
            now = os.fstat(descriptor)
            if file_state(now) != file_state(before):
                os.close(descriptor)
                raise changed(path, before.st_size, now)
            self._descriptors[buffer] = descriptor
            if self._at_random:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return self._descriptors[buffer]
