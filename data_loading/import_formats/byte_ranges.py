"""Tokens in runs of bytes anywhere in files, and document starts computed from what the files store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.mapped import MappedReader
from data_loading.tokens.lazy_array import LazyValues
from data_loading.tokens.shards import Shards, allow_open_files


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
        self.dtype = dtype
        self.extents = Extents(
            dtype=dtype,
            buffers=tuple(_map(path) for path in files),
            paths=tuple(files),
            file_offset_bytes=(0,) * len(files),
            buffer=file,
            offset_bytes=offset_bytes,
            first=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
        )
        self._reader = MappedReader(self.extents)

    @classmethod
    def of_files(cls, dtype: np.dtype, files: Sequence[Path], header_bytes: int = 0) -> Runs:
        """Return one run a file: everything behind its header."""
        lengths = [(path.stat().st_size - header_bytes) // dtype.itemsize for path in files]
        offsets = np.full(len(files), header_bytes, np.int64)
        return cls(dtype, files, np.arange(len(files)), offsets, np.array(lengths, np.int64))

    def __len__(self) -> int:
        return self.extents.tokens

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self._reader.gather_spans(np.array([start]), np.array([stop - start]))

    def take(self, places: np.ndarray) -> np.ndarray:
        return self._reader.gather(places, 1)[:, 0]


class Places(NamedTuple):
    """Starts of items in one file: value // unit + added is the first token of an item."""

    values: np.ndarray
    """1-D integers, mapped or in memory."""
    unit: int
    added: int


def starts_at(places: Sequence[Places]) -> Shards:
    """Return document starts, uint64. A document without tokens starts at the next document's start."""
    parts, units, added = zip(*places, strict=True)
    return Shards(parts, added, units, np.dtype("<u8"))


def _map(path: Path) -> np.ndarray:
    """Map a file as a plain array, whose slices cost less than those of np.memmap."""
    return np.asarray(np.memmap(path, np.uint8, mode="r")) if path.stat().st_size else np.empty(0, np.uint8)
