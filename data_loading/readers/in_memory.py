"""The reader from memory: a copy of the tokens in the process."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np

from data_loading.readers.extents import Extents, changed, file_state
from data_loading.readers.mapped import MappedReader
from experiment_utils.errors import UserError
from memory import format_bytes, snapshot

log = logging.getLogger("data_loading")
_copies: WeakValueDictionary[tuple[int, ...], np.ndarray] = WeakValueDictionary()
"""Copies of this process by file and its state, so that train and val of one set share one."""


class InMemoryReader(MappedReader):
    """Reads from a copy of the token files, one in each process that reads (anon memory)."""

    name = "memory"

    def __init__(self, extents: Extents) -> None:
        """Raises UserError: there is no room for the tokens, or a file was truncated."""
        files = list(zip(extents.paths, extents.file_offset_bytes, extents.buffers, strict=True))
        _check_room(sum(len(file[2]) for file in files if _known(*file) is None))
        buffers = tuple(_copy(*file) for file in files)
        nowhere, zeros = (None,) * len(files), (0,) * len(files)
        super().__init__(
            dataclasses.replace(extents, buffers=buffers, paths=nowhere, file_offset_bytes=zeros)
        )


def _key(path: Path, at: int, buffer: np.ndarray) -> tuple[int, ...]:
    return *file_state(path.stat()), at, len(buffer)


def _known(path: Path | None, at: int, buffer: np.ndarray) -> np.ndarray | None:
    return buffer if path is None else _copies.get(_key(path, at, buffer))


def _copy(path: Path | None, at: int, buffer: np.ndarray) -> np.ndarray:
    """The copy of a file that this process has, or a new one. Raises UserError: the file was truncated."""
    found = _known(path, at, buffer)
    if found is None:
        assert path is not None
        found = np.fromfile(path, np.uint8, len(buffer), offset=at)
        if len(found) < len(buffer):
            raise changed(path, at + len(buffer), path.stat())
        found.flags.writeable = False
        _copies[_key(path, at, buffer)] = found
    return found


def _check_room(size_bytes: int) -> None:
    free = room_bytes()
    if free is not None and size_bytes > free:
        raise UserError(
            f"reader=memory: the tokens are {format_bytes(size_bytes)}, and there is room for "
            f"{format_bytes(free)}. Read them with reader=mmap, whose pages the kernel takes back if memory "
            "is short, or with reader=pread",
            code="memory-too-small",
        )
    if size_bytes:
        log.info("reading %s of tokens into memory", format_bytes(size_bytes))


def room_bytes() -> int | None:
    """Return the memory that this job can still take; None if unknown."""
    return snapshot().left_bytes
