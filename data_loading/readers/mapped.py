"""The reader over memory maps: a batch is one gather by NumPy; pages are the kernel's page cache."""

from __future__ import annotations

import numpy as np

from data_loading.readers.reader import Reader


class MappedReader(Reader):
    """Reads what is mapped, or lies in memory."""

    name = "mmap"

    def _read(self, buffer: int, offsets_bytes: np.ndarray, length_bytes: int) -> np.ndarray:
        spans: np.ndarray = _spans(self.extents.buffers[buffer], length_bytes)[offsets_bytes]
        return spans


def _spans(data: np.ndarray, length_bytes: int) -> np.ndarray:
    """A span at every byte, overlapping, not copied. An opaque element each: NumPy takes it by memcpy."""
    return np.ndarray(
        shape=(len(data) - length_bytes + 1,),
        dtype=np.dtype((np.void, length_bytes)),
        buffer=data,
        strides=(1,),
    )
