"""Tokens or document starts in one array, or in several places and read in slices as one."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

LENGTHS_READ = 1 << 20
"""Document starts that are read together."""


class LazyValues(abc.ABC):
    """1-D integers that are not one array: they are in several files, or computed."""

    dtype: np.dtype

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def _slice(self, start: int, stop: int) -> np.ndarray:
        """Return a new array of the values from start to stop, `0 <= start <= stop <= len(self)`."""

    @overload
    def __getitem__(self, key: int) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> np.ndarray: ...
    def __getitem__(self, key: int | slice) -> int | np.ndarray:
        """Return a value, or the values of a slice of step 1."""
        if not isinstance(key, slice):
            index = key + len(self) if key < 0 else key
            if not 0 <= index < len(self):
                raise IndexError(f"{key} of {len(self)} values")
            return int(self._slice(index, index + 1)[0])
        start, stop, step = key.indices(len(self))
        if step != 1:
            raise ValueError("slices of these values have the step 1")
        return self._slice(start, max(start, stop))

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return the values at these places (int64), `(len(places),)`."""
        return np.array([self[int(place)] for place in places], self.dtype)

    def search(self, wanted: np.ndarray) -> np.ndarray:
        """Return how many of the ascending values are below each wanted one (int64), as np.searchsorted.

        Bisects for all wanted ones together.
        """
        below, above = np.zeros(len(wanted), np.int64), np.full(len(wanted), len(self), np.int64)
        while (open_ := below < above).any():
            middle = (below + above) // 2
            is_below = np.zeros(len(wanted), bool)
            is_below[open_] = self.take(middle[open_]).astype(np.int64) < wanted[open_]
            below = np.where(open_ & is_below, middle + 1, below)
            above = np.where(open_ & ~is_below, middle, above)
        return below

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("these values are not one array; read slices")


Values = np.ndarray | LazyValues
"""`len`, `dtype`, slices, single values; `take` and `search`."""


def take(values: Values, places: np.ndarray) -> np.ndarray:
    """Return the values at these places (int64), `(len(places),)`."""
    return values[places] if isinstance(values, np.ndarray) else values.take(places)


def search(values: Values, wanted: np.ndarray) -> np.ndarray:
    """Return how many of the ascending values are below each wanted one (int64), as np.searchsorted."""
    if isinstance(values, np.ndarray):
        return np.searchsorted(values, wanted.astype(values.dtype))
    return values.search(wanted)


def document_lengths(starts: Values | Sequence[int], n_tokens: int) -> Iterator[np.ndarray]:
    """Yield the tokens of each document, int64, in slices."""
    for at in range(0, len(starts), LENGTHS_READ):
        part = np.asarray(starts[at : at + LENGTHS_READ + 1]).astype(np.int64)
        yield np.diff(part, append=n_tokens) if at + LENGTHS_READ >= len(starts) else np.diff(part)
