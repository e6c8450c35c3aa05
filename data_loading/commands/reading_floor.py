"""The floor: what reading windows costs at least in NumPy, to hold the loader against."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.readers.mapped import MappedReader

_MOST_RUNS = 1 << 12


class Floor:
    """`view[starts]` of a strided view of each file, and `astype(int64)`: no order, no checks, no advice.

    It has maps of its own, so that what a reader tells the kernel of its pages does not change it.
    """

    def __init__(self, extents: Extents, width: int) -> None:
        """width: tokens of a window. extents: as `why_no_floor` finds nothing against."""
        buffers = tuple(
            buffer if path is None else np.memmap(path, np.uint8, "r", offset, len(buffer))
            for path, offset, buffer in zip(
                extents.paths, extents.file_offset_bytes, extents.buffers, strict=True
            )
        )
        own = dataclasses.replace(extents, buffers=buffers)
        self._first, self._pages = own.first, MappedReader(own)
        size = own.dtype.itemsize
        self._views = []
        for run, (buffer, offset) in enumerate(zip(own.buffer, own.offset_bytes, strict=True)):
            tokens = int(own.first[run + 1] - own.first[run])
            ids = buffers[buffer][offset : offset + tokens * size].view(own.dtype)
            self._views.append(
                np.lib.stride_tricks.as_strided(ids, (tokens - width + 1, width), (size, size))
            )

    def read(self, starts: np.ndarray) -> np.ndarray:
        """`(len(starts), width)` int64. Where there are several files, those of each come together, and a
        window that would go on in the next one begins earlier: the same work in another order.
        """
        if len(self._views) == 1:
            return self._views[0][starts].astype(np.int64)
        runs = np.searchsorted(self._first, starts, side="right") - 1
        inside = starts - self._first[runs]
        found = [
            view[np.minimum(inside[runs == run], len(view) - 1)]
            for run, view in enumerate(self._views)
            if (runs == run).any()
        ]
        return np.concatenate(found).astype(np.int64)

    def release(self) -> None:
        """Unmap its pages; they stay in the page cache."""
        self._pages.release()


def why_no_floor(extents: Extents, width: int) -> str | None:
    """Why no window of these tokens is one slice of a file; None: there is a floor."""
    if len(extents.buffer) > _MOST_RUNS:
        return f"the tokens lie in {len(extents.buffer):,} pieces"
    shortest = int(np.diff(extents.first).min())
    if shortest < width:
        return f"one of the files has {shortest:,} tokens, a window {width:,}"
    return None


def drop_from_cache(paths: list[Path]) -> None:
    """Take files out of the page cache (posix_fadvise(2)), as far as no process maps them."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # what was not written yet stays in the cache
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def bytes_read() -> int | None:
    """From disks, by this process (read_bytes of /proc/self/io, proc(5)); None where nothing says."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), None)
