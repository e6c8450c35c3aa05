"""The reader from memory: one copy of the tokens on the machine, for all ranks and workers of a job."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import logging
import mmap
import os

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.mapped import MappedReader
from data_loading.readers.node_memory import node_memory
from data_loading.readers.room import room_bytes
from experiment_utils.errors import UserError
from memory import format_bytes

log = logging.getLogger("data_loading")

_READ_BYTES = 16 << 20


class InMemoryReader(MappedReader):
    """Reads from a copy in shared memory (shmem: it counts as unreclaimable, once for the whole job)."""

    name = "memory"

    def __init__(self, extents: Extents) -> None:
        """Raises UserError: there is no room for the tokens, or they cannot be read."""
        sizes = [len(buffer) for buffer in extents.buffers]
        copied = node_memory(_key(extents), max(sum(sizes), 1), lambda into: _fill(into, extents))
        whole = np.frombuffer(copied, np.uint8)
        borders = np.cumsum([0, *sizes])
        super().__init__(
            dataclasses.replace(
                extents,
                buffers=tuple(whole[a:b] for a, b in itertools.pairwise(borders)),
                paths=(None,) * len(sizes),
                file_offset_bytes=(0,) * len(sizes),
            )
        )


def _check_room(size_bytes: int) -> None:
    free = room_bytes()
    if free is not None and size_bytes > free:
        raise UserError(
            f"reader=memory: the tokens are {format_bytes(size_bytes)}, and there is room for "
            f"{format_bytes(free)}. Read them with reader=mmap, whose pages the kernel gives back when "
            "memory is short, or with reader=pread",
            code="memory-too-small",
        )


def _key(extents: Extents) -> str:
    """The same for the same files in the same state."""
    digest = hashlib.sha256()
    for path, offset, buffer in zip(extents.paths, extents.file_offset_bytes, extents.buffers, strict=True):
        if path is None:
            digest.update(f"{os.getpid()} {buffer.ctypes.data}".encode())
        else:
            found = path.stat()
            state = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, offset
            digest.update(repr(state).encode())
    return digest.hexdigest()


def _fill(into: mmap.mmap, extents: Extents) -> None:
    _check_room(len(into))
    at = 0
    log.info("reading %s of tokens into memory", format_bytes(sum(map(len, extents.buffers))))
    for path, offset, buffer in zip(extents.paths, extents.file_offset_bytes, extents.buffers, strict=True):
        if path is None:
            into[at : at + len(buffer)] = buffer.tobytes()
            at += len(buffer)
            continue
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            end = at + len(buffer)
            while at < end:
                count = file.readinto(memoryview(into)[at : min(end, at + _READ_BYTES)])
                if not count:
                    raise UserError(
                        f"{path} was truncated while it was read. Restore it", code="truncated-while-read"
                    )
                at += count
