"""Tokens in runs of bytes anywhere in files, and document starts computed from what the files store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.mapped import spans
from data_loading.tokens.lazy_array import LazyValues
from data_loading.tokens.shards import allow_open_files

START = np.dtype("<u8")
_SHORT_TOKENS = 64
"""Runs shorter than this are read by token, longer ones each by a copy."""
_TAKEN_TOKENS = 1 << 17


class Runs(LazyValues):
    """Tokens of one dtype, little endian, in runs that follow each other.

    Run r has `lengths[r]` tokens, from byte `offset_bytes[r]` of `files[file[r]]` on. A run takes 24 bytes of
    RAM.

    Args:
        dtype: Of a token.
        files: Files, each mapped whole.
        file: `(runs,)` int64.
        offset_bytes: `(runs,)` int64.
        lengths: `(runs,)` int64.
    """

    def __init__(
        self,
        dtype: np.dtype,
        files: Sequence[Path],
        file: np.ndarray,
        offset_bytes: np.ndarray,
        lengths: np.ndarray,
    ) -> None:
        allow_open_files(2 * len(files))
        self.dtype, self.files = dtype, tuple(files)
        self._file, self._offset_bytes = file, offset_bytes
        self._first = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        self._maps = [_map(path) for path in self.files]

    @classmethod
    def of_files(cls, dtype: np.dtype, files: Sequence[Path], header_bytes: int = 0) -> Runs:
        """Return one run a file: everything behind its header."""
        lengths = [(path.stat().st_size - header_bytes) // dtype.itemsize for path in files]
        return cls(
            dtype,
            files,
            np.arange(len(files)),
            np.full(len(files), header_bytes, np.int64),
            np.array(lengths, np.int64),
        )

    @property
    def extents(self) -> Extents:
        return Extents(
            dtype=self.dtype,
            buffers=tuple(self._maps),
            paths=self.files,
            file_offset_bytes=(0,) * len(self.files),
            buffer=self._file,
            offset_bytes=self._offset_bytes,
            first=self._first,
        )

    def __len__(self) -> int:
        return int(self._first[-1])

    def _slice(self, start: int, stop: int) -> np.ndarray:
        found, size = np.empty(stop - start, self.dtype), self.dtype.itemsize
        run, last_run = np.searchsorted(self._first, [start, stop], side="right").tolist()
        run -= 1
        if (last_run - run) * _SHORT_TOKENS > stop - start:
            for at in range(start, stop, _TAKEN_TOKENS):
                end = min(at + _TAKEN_TOKENS, stop)
                found[at - start : end - start] = self.take(np.arange(at, end))
            return found
        at = start
        while at < stop:
            first, last = int(self._first[run]), min(stop, int(self._first[run + 1]))
            offset = int(self._offset_bytes[run]) + (at - first) * size
            data = self._maps[self._file[run]][offset : offset + (last - at) * size]
            found[at - start : last - start] = data.view(self.dtype)
            at, run = last, run + 1
        return found

    def take(self, places: np.ndarray) -> np.ndarray:
        found = np.empty(len(places), self.dtype)
        runs = np.searchsorted(self._first, places, side="right") - 1
        offsets = self._offset_bytes[runs] + (places - self._first[runs]) * self.dtype.itemsize
        files = self._file[runs]
        for file in np.unique(files):
            here = files == file
            read = spans(self._maps[file], self.dtype.itemsize)[offsets[here]]
            found[here] = read.view(self.dtype)
        return found


def _map(path: Path) -> np.ndarray:
    """Map a file as a plain array, whose slices cost less than those of np.memmap."""
    return np.asarray(np.memmap(path, np.uint8, mode="r")) if path.stat().st_size else np.empty(0, np.uint8)


@dataclass(frozen=True)
class Places:
    """Starts of items in one file: value // unit + added is the first token of an item."""

    values: np.ndarray
    """1-D integers, mapped or in memory."""
    unit: int
    added: int


class Starts(LazyValues):
    """Document starts, uint64. A document without tokens starts at the next document's start."""

    dtype = START

    def __init__(self, parts: Sequence[Places]) -> None:
        self._parts = [part for part in parts if len(part.values)]
        self._first = np.cumsum([0, *(len(part.values) for part in self._parts)])
        self._begin = np.array([self._read(number, 0) for number in range(len(self._parts))], np.int64)

    def __len__(self) -> int:
        return int(self._first[-1])

    def _slice(self, start: int, stop: int) -> np.ndarray:
        found = np.empty(stop - start, START)
        at, number = start, int(np.searchsorted(self._first, start, side="right")) - 1
        while at < stop:
            first, last = int(self._first[number]), min(stop, int(self._first[number + 1]))
            found[at - start : last - start] = self._read(number, np.s_[at - first : last - first])
            at, number = last, number + 1
        return found

    def take(self, places: np.ndarray) -> np.ndarray:
        found = np.empty(len(places), START)
        parts = np.searchsorted(self._first, places, side="right") - 1
        for number in np.unique(parts):
            here = parts == number
            found[here] = self._read(int(number), places[here] - self._first[number])
        return found

    def search(self, wanted: np.ndarray) -> np.ndarray:
        found = np.zeros(len(wanted), np.int64)
        parts = np.searchsorted(self._begin, wanted) - 1  # the last part that has a value below it
        for number in np.unique(parts[parts >= 0]):
            here, part = parts == number, self._parts[number]
            places = (wanted[here] - part.added) * part.unit
            most = np.iinfo(part.values.dtype).max
            below = np.searchsorted(part.values, np.minimum(places, most).astype(part.values.dtype))
            found[here] = self._first[number] + np.where(places > most, len(part.values), below)
        return found

    def _read(self, number: int, key: int | slice | np.ndarray) -> np.ndarray:
        part = self._parts[number]
        read: np.ndarray = part.values[key].astype(np.int64) // part.unit + part.added
        return read
