"""Find which of many hashes came before: exact, in bounded memory, with files of hashes on disk.

Hashes are collected until the memory is full and sorted, which finds those that are there twice. The
others go to one of 256 files by their next byte. Each file is read again in the same way, so that a file
of any size, or of equal hashes only, needs the same memory. Nothing is written while all fit into
memory. The result is a file with a bit for each number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

HASH_BYTES = 16
RECORD_BYTES = HASH_BYTES + 8
"""A hash and its number, on disk."""
LEAST_MEMORY_BYTES = 16 << 20
_WORKING_BYTES = 96
"""Memory per record while they are sorted and divided."""
_MOST_WINDOW = 1 << 26
_READ_ROWS = 1 << 15


class FirstSeen:
    """Finds which of numbered hashes are repetitions; used once.

    folder: for files, which are removed when they are read. memory_bytes: at least LEAST_MEMORY_BYTES.
    on_spill: called with the bytes written so far and the bytes to write next, before they are written.
    """

    def __init__(
        self, folder: Path, memory_bytes: int, on_spill: Callable[[int, int], None] = lambda *_: None
    ) -> None:
        self.spilt_bytes = 0
        self.repeated = 0
        self._folder, self._on_spill = folder, on_spill
        self._records = np.empty((3, max(2, memory_bytes // _WORKING_BYTES)), "<u8")
        self._count = 0
        self._window = max(8, min(_MOST_WINDOW, memory_bytes // 4) // 8 * 8)

    def find(self, batches: Iterable[np.ndarray]) -> None:
        """Take in all hashes. batches: uint64 `(n, 3)`, the hash's halves and its number, which ascends."""
        self._find(batches, 0, "hashes")
        self._records = np.empty((3, 0), "<u8")

    def write_bits(self, total: int, out: IO[bytes]) -> None:
        """A bit for each number below `total`, lowest first: whether its hash came before."""
        for window, start in enumerate(range(0, total, self._window)):
            is_repeated = np.zeros(min(self._window, total - start), bool)
            for numbers in _read(self._folder / f"repeated.{window}", 1):
                is_repeated[numbers[:, 0] - np.uint64(start)] = True
            out.write(np.packbits(is_repeated, bitorder="little").tobytes())

    def _find(self, batches: Iterable[np.ndarray], depth: int, name: str) -> None:
        is_spilt = False
        for batch in batches:
            while len(batch):
                taken = batch[: self._records.shape[1] - self._count]
                self._records[:, self._count : self._count + len(taken)] = taken.T
                self._count += len(taken)
                batch = batch[len(taken) :]
                if self._count == self._records.shape[1]:
                    self._spill(depth, name)
                    is_spilt = True
        if not is_spilt:
            self._firsts()
            self._count = 0
            return
        self._spill(depth, name)
        for part in range(256):
            path = self._folder / f"{name}.{part:02x}"
            if path.exists():
                self._find(_read(path, 3), depth + 1, path.name)

    def _firsts(self) -> np.ndarray:
        """Which of the records in memory are no repetition of one before; the others are noted."""
        high, low, numbers = self._records[:, : self._count]
        order = np.lexsort((low, high))  # stable: among equal ones, the first number comes first
        is_same = np.ones(max(0, self._count - 1), bool)
        for half in (high, low):
            arranged = half[order]
            is_same &= arranged[1:] == arranged[:-1]
        later = order[1:][is_same]
        self._note(np.sort(numbers[later]))
        is_first = np.ones(self._count, bool)
        is_first[later] = False
        return is_first

    def _note(self, numbers: np.ndarray) -> None:
        self._on_spill(self.spilt_bytes, numbers.nbytes)
        self.repeated += len(numbers)
        windows = numbers // np.uint64(self._window)
        for window in np.unique(windows):
            begin, end = np.searchsorted(windows, [window, window + np.uint64(1)])
            _append(self._folder / f"repeated.{window}", numbers[begin:end])

    def _spill(self, depth: int, name: str) -> None:
        """Write what is in memory to files by byte `depth` of the hash, and forget it."""
        records = self._records[:, : self._count][:, self._firsts()]
        self._on_spill(self.spilt_bytes, records.nbytes)
        self._count = 0
        half, shift = divmod(depth % HASH_BYTES, 8)
        parts = (records[half] >> np.uint64(56 - 8 * shift)).astype(np.uint8)
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts, minlength=256))
        for part, (begin, end) in enumerate(zip(ends - np.diff(ends, prepend=0), ends, strict=True)):
            if end > begin:
                rows = records[:, order[begin:end]].T
                _append(self._folder / f"{name}.{part:02x}", rows)
                self.spilt_bytes += rows.nbytes


def _append(path: Path, values: np.ndarray) -> None:
    with open(path, "ab") as file:
        file.write(values.tobytes())


def _read(path: Path, columns: int) -> Iterator[np.ndarray]:
    """The values of the file in rows, part by part; it is removed at its end."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        while len(values := np.fromfile(file, "<u8", columns * _READ_ROWS)):
            yield values.reshape(-1, columns)
    path.unlink()
