"""The reader from memory: a copy of the tokens in the process."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.mapped import MappedReader
from experiment_utils.errors import UserError
from memory import format_bytes, snapshot

log = logging.getLogger("data_loading")
_copies: WeakValueDictionary[tuple[Any, ...], np.ndarray] = WeakValueDictionary()
"""Copies of this process by file and its state, so that train and val of one set share one."""


class InMemoryReader(MappedReader):
    """Reads from a copy of the token files, one in each process that reads (anon memory)."""

    name = "memory"

    def __init__(self, extents: Extents) -> None:
        """Raises UserError: there is no room for the tokens, or they cannot be read."""
        files = list(zip(extents.paths, extents.file_offset_bytes, extents.buffers, strict=True))
        _check_room(sum(len(buffer) for path, at, buffer in files if _known(path, at, buffer) is None))
        buffers = []
        for path, at, buffer in files:
            copy = _known(path, at, buffer)
            if copy is None:
                assert path is not None
                copy = _copies[_key(path, at, buffer)] = _read(path, at, len(buffer))
            buffers.append(copy)
        nowhere, zeros = (None,) * len(files), (0,) * len(files)
        super().__init__(
            dataclasses.replace(extents, buffers=tuple(buffers), paths=nowhere, file_offset_bytes=zeros)
        )


def _key(path: Path, at: int, buffer: np.ndarray) -> tuple[Any, ...]:
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, at, len(buffer)


def _known(path: Path | None, at: int, buffer: np.ndarray) -> np.ndarray | None:
    return buffer if path is None else _copies.get(_key(path, at, buffer))


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


def _read(path: Path, at: int, size_bytes: int) -> np.ndarray:
    found = np.fromfile(path, np.uint8, size_bytes, offset=at)
    if len(found) < size_bytes:
        raise UserError(f"{path} was truncated while it was read. Restore it", code="truncated-while-read")
    found.flags.writeable = False
    return found


def room_bytes() -> int | None:
    """Return the memory that this job can still take; None if unknown.

    It is the effective limit (of a cgroup, else the machine's memory) less unreclaimable memory, and at most
    what the kernel can provide (MemAvailable, proc(5)).
    """
    found = snapshot()
    limit, used, available = found.limit_bytes, found.unreclaimable_bytes, found.host.available_bytes
    if limit is None or used is None:
        return available
    left = max(limit - used, 0)
    return left if available is None else min(left, available)
