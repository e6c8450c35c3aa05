"""Where the tokens of a set lie: runs of them, each contiguous in one file or array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.tokens.lazy_array import Values
from data_loading.tokens.shards import Shards


@dataclass(frozen=True, eq=False)
class Extents:
    """Run r holds the tokens [first[r], first[r + 1]), from byte offset_bytes[r] of buffers[buffer[r]] on.

    dtype: of a token, little endian. buffers: 1-D uint8, the maps of whole files or arrays in memory.
    paths: of the files; None for an array. file_offset_bytes: where a buffer begins in its file.
    buffer `(runs,)` int64, offset_bytes `(runs,)` int64, first `(runs + 1,)` int64. There may be millions
    of runs: samples of a format that stores each with a header of its own.
    """

    dtype: np.dtype
    buffers: tuple[np.ndarray, ...]
    paths: tuple[Path | None, ...]
    file_offset_bytes: tuple[int, ...]
    buffer: np.ndarray
    offset_bytes: np.ndarray
    first: np.ndarray

    @property
    def tokens(self) -> int:
        return int(self.first[-1])


def extents_of(tokens: Values) -> Extents:
    """Return the extents of one array, of several that follow each other, or of values that know theirs.

    Raises:
        TypeError: values that are computed.
    """
    if isinstance(known := getattr(tokens, "extents", None), Extents):
        return known
    if not isinstance(tokens, np.ndarray | Shards):
        raise TypeError(f"{type(tokens).__name__} are not in files or arrays")
    parts: Sequence[np.ndarray] = tokens.parts if isinstance(tokens, Shards) else [tokens]
    lengths = [len(part) for part in parts]
    return Extents(
        dtype=parts[0].dtype,
        buffers=tuple(np.asarray(part).view(np.uint8) for part in parts),
        paths=tuple(_path(part) for part in parts),
        file_offset_bytes=tuple(part.offset if isinstance(part, np.memmap) else 0 for part in parts),
        buffer=np.arange(len(parts)),
        offset_bytes=np.zeros(len(parts), np.int64),
        first=np.cumsum([0, *lengths]),
    )


def _path(array: np.ndarray) -> Path | None:
    name = array.filename if isinstance(array, np.memmap) else None
    return Path(name) if name is not None else None
