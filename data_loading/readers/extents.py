"""Places of a set's tokens: runs, each contiguous in one file or array."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_loading.tokens.lazy_array import Values
from data_loading.tokens.shards import Shards
from experiment_utils.errors import UserError


@dataclass(frozen=True, eq=False)
class Extents:
    """Run r holds the tokens [first[r], first[r + 1]), from byte offset_bytes[r] of buffers[buffer[r]] on.

    There can be millions of runs: samples of a format that stores each with a header of its own.
    """

    dtype: np.dtype
    """Type of a token, little endian."""
    buffers: tuple[np.ndarray, ...]
    """1-D uint8: maps of whole files, or arrays in memory."""
    paths: tuple[Path | None, ...]
    """File of each buffer; None for an array."""
    file_offset_bytes: tuple[int, ...]
    """Start of each buffer in its file."""
    buffer: np.ndarray
    """`(runs,)` int64."""
    offset_bytes: np.ndarray
    """`(runs,)` int64."""
    first: np.ndarray
    """`(runs + 1,)` int64."""

    @property
    def tokens(self) -> int:
        return int(self.first[-1])

    def check_sizes(self) -> None:
        """Raises UserError if a file is shorter than its map: a read behind its end would be SIGBUS."""
        for path, at, buffer in zip(self.paths, self.file_offset_bytes, self.buffers, strict=True):
            if path is not None and path.stat().st_size < at + len(buffer):
                raise changed(path, at + len(buffer), path.stat())


def file_state(found: os.stat_result) -> tuple[int, ...]:
    """Return what identifies the content of a file, as far as stat(2) shows it."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def changed(path: Path, before_bytes: int, now: os.stat_result) -> UserError:
    """Return the error for a file that is not the one that its set was opened with."""
    return UserError(
        f"{path} changed: it had {before_bytes:,} bytes when its set was opened, now it has "
        f"{now.st_size:,}. A token file must not change under a run. Restore it (pretokenize_dataset.py "
        "verify checks it), and type the same command again to resume from the last checkpoint",
        code="changed-while-read",
    )


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
    names = [part.filename if isinstance(part, np.memmap) else None for part in parts]
    return Extents(
        dtype=parts[0].dtype,
        buffers=tuple(np.asarray(part).view(np.uint8) for part in parts),
        paths=tuple(None if name is None else Path(name) for name in names),
        file_offset_bytes=tuple(part.offset if isinstance(part, np.memmap) else 0 for part in parts),
        buffer=np.arange(len(parts)),
        offset_bytes=np.zeros(len(parts), np.int64),
        first=np.cumsum([0, *map(len, parts)]),
    )
