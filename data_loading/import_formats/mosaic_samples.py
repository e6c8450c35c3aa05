"""Find the ids of each sample of an MDS shard, vectorized over all samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_SIZE_BYTES = 4


@dataclass(frozen=True)
class Column:
    """The column of ids."""

    dtype: np.dtype
    place: int
    """Index among the columns."""
    sizes: tuple[int | None, ...]
    """Bytes of each column; None if each sample has its own size."""
    has_shape: bool
    """Whether values follow their own shape."""


def find_values(
    data: np.ndarray, offsets: np.ndarray, column: Column, *, trusting: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return (byte at which the ids of each sample begin, their number), int64.

    Args:
        data: The shard, 1-D uint8.
        offsets: `(samples + 1,)` int64.
        trusting: Shapes were checked before: derive them from lengths, without a read of any sample.

    Raises:
        ValueError: A sample does not fit the columns; names the first one.
    """
    begin, length_bytes = _bodies(data, offsets, column)
    if column.has_shape:
        width = _shape_bytes(length_bytes, column.dtype.itemsize)
        if not trusting:
            _check_shapes(data, begin, length_bytes, width, column.dtype.itemsize)
        begin, length_bytes = begin + 1 + width, length_bytes - 1 - width
    counts, rest = np.divmod(length_bytes, column.dtype.itemsize)
    _refuse(rest != 0, f"is no whole number of {column.dtype.name}")
    return begin, counts


def _bodies(data: np.ndarray, offsets: np.ndarray, column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Return (first byte, bytes) of the column in each sample."""
    start, stop = offsets[:-1], offsets[1:]
    stored = [number for number, size in enumerate(column.sizes) if size is None]
    at = start + _SIZE_BYTES * len(stored)
    _refuse(at > stop, "is shorter than its sizes")
    begin = length = np.zeros(len(start), np.int64)
    for number, size in enumerate(column.sizes):
        if size is not None:
            here = np.full(len(start), size, np.int64)
        elif stored == [number]:  # the only one: the rest of the sample
            fixed = sum(other for other in column.sizes if other is not None)
            here = stop - start - _SIZE_BYTES - fixed
        else:
            here = _numbers(data, start + _SIZE_BYTES * stored.index(number))
        if number == column.place:
            begin, length = at, here
        at = at + here
    _refuse((at != stop) | (length < 0), "is not as long as its columns")
    return begin, length


def _shape_bytes(length_bytes: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the width of the number of values, in bytes: the fewest that hold it."""
    found = np.zeros(len(length_bytes), np.int64)
    for width in (1, 2, 4):
        counts, rest = np.divmod(length_bytes - 1 - width, itemsize)
        fits = (rest == 0) & (counts > 0) & (counts < 1 << 8 * width)
        found[fits & (found == 0) & ((width == 1) | (counts >= 1 << 4 * width))] = width
    _refuse(found == 0, "is not as long as any 1-D array")
    return found


def _check_shapes(
    data: np.ndarray, begin: np.ndarray, length_bytes: np.ndarray, width: np.ndarray, itemsize: int
) -> None:
    """Check the byte of dimensions, and the number of values behind it."""
    kind = data[begin].astype(np.int64)
    _refuse(kind != (1 << 2 | np.log2(width).astype(np.int64)), "is no 1-D array of such a length")
    said = np.zeros(len(begin), np.int64)
    for byte in range(int(width.max(initial=0))):
        here = byte < width
        said[here] |= data[begin[here] + 1 + byte].astype(np.int64) << 8 * byte
    _refuse(said != (length_bytes - 1 - width) // itemsize, "is not as long as its shape says")


def _numbers(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    found = np.zeros(len(at), np.int64)
    for byte in range(_SIZE_BYTES):
        found |= data[at + byte].astype(np.int64) << 8 * byte
    return found


def _refuse(wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        raise ValueError(f"sample {int(np.argmax(wrong)):,} {what}")
