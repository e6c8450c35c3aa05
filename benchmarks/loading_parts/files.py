"""The tokens that all loaders read, and whether their files are in the page cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_loading.commands.reading_floor import drop_from_cache

VOCABULARY = 50_257
_BLOCK = 1 << 24


def write_tokens(path: Path, count: int, vocabulary: int = VOCABULARY) -> None:
    """A .npy of random ids, uint16, so that no page is a hole; left alone where it is there."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    tokens = np.lib.format.open_memmap(partial, "w+", np.dtype("<u2"), (count,))
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        tokens[start:stop] = np.random.default_rng(start).integers(0, vocabulary, stop - start, np.uint16)
    tokens.flush()
    partial.rename(path)


def warm(folder: Path) -> None:
    """Bring every file of a folder into the page cache anew, read from its beginning to its end: pages that a
    loader read one by one would stay as small as they came, and cost it more faults than others.
    """
    drop(folder)
    buffer = bytearray(4 << 20)
    for path in _files(folder):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def drop(folder: Path) -> None:
    """Take every file of a folder out of the page cache."""
    drop_from_cache(_files(folder))


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
