"""Tokens or document starts, wherever they lie: an array, or what is read in slices as one."""

from __future__ import annotations

import abc
from typing import Any, overload

import numpy as np


class LazyValues(abc.ABC):
    """1-D integers in order that are not one array: they lie in several files, or are computed."""

    dtype: np.dtype

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def _slice(self, start: int, stop: int) -> np.ndarray:
        """A new array of the values from start to stop, `0 <= start <= stop <= len(self)`."""

    @overload
    def __getitem__(self, key: int) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> np.ndarray: ...
    def __getitem__(self, key: int | slice) -> int | np.ndarray:
        """A value, or those of a slice (of step 1)."""
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
        """The values at these places (int64), `(len(places),)`."""
        return np.array([self[int(place)] for place in places], self.dtype)

    def search(self, wanted: np.ndarray) -> np.ndarray:
        """How many of the values, ascending, are below each wanted one (int64), int64: np.searchsorted.

        By halves, for all wanted ones at once.
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
        raise TypeError("these values are not one array: read slices of them")


Values = np.ndarray | LazyValues
"""`len`, `dtype`, slices, single values; `take` and `search`."""


def take(values: Values, places: np.ndarray) -> np.ndarray:
    """The values at these places (int64), `(len(places),)`."""
    return values[places] if isinstance(values, np.ndarray) else values.take(places)


def search(values: Values, wanted: np.ndarray) -> np.ndarray:
    """How many of the ascending values are below each wanted one (int64), int64, as np.searchsorted."""
    if isinstance(values, np.ndarray):
        return np.searchsorted(values, wanted.astype(values.dtype))
    return values.search(wanted)
