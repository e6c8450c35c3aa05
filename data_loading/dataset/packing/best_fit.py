"""Best-fit-decreasing bin packing: the bin of each of many items, for bins of one capacity.

Bins with the same room, and items of the same length, are interchangeable: so they are counted, and whole
groups of bins take whole groups of items. What is done in Python depends on how many lengths differ, not on
how many items there are.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from data_loading.readers.reader import elements


def best_fit(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, int]:
    """Return (bin of each item, int64 `(len(lengths),)`; number of bins); each bin has at most `capacity`.

    Items are taken from the longest to the shortest. Each is put into the bin with the least room that it
    fits in, or into a new one (D. S. Johnson, Near-optimal bin packing algorithms, 1973: at most
    11/9 of the bins that are needed, and 4 more). lengths: 1 to capacity. Bins are numbered in the order of
    the items that they were begun with, their longest: 0 holds the first item of `lengths` that begins one.
    """
    counts = np.bincount(lengths, minlength=1)
    packing = _Packing(capacity)
    for length in np.flatnonzero(counts)[::-1].tolist():
        packing.add(length, int(counts[length]))
    first, bins, each = np.array(packing.steps, np.int64).reshape(-1, 3).T
    into = np.repeat(elements(first, bins), np.repeat(each, bins))
    spread = _spread(len(lengths))
    order = spread[
        np.argsort((capacity - lengths[spread]).astype(np.min_scalar_type(capacity)), kind="stable")
    ]
    beginner = np.empty(packing.bins, np.int64)
    beginner[into[::-1]] = order[::-1]  # of equal indices the last is kept: the longest item of a bin
    begins = np.zeros(len(lengths), bool)
    begins[beginner] = True
    number = (np.cumsum(begins) - 1)[beginner]
    found = np.empty(len(lengths), np.int64)
    found[order] = number[into]
    return found, packing.bins


def _spread(n: int) -> np.ndarray:
    """Return 0 to n - 1 in an order of which any part is evenly spread.

    Items of one length are taken in this order. In their own order the last ones would be those that no bin
    has room for, and bins begun with short items would all come last.
    """
    step = max(round(n * 0.6180339887), 1)
    while math.gcd(step, n) > 1:
        step += 1
    found: np.ndarray = np.arange(n) * step % max(n, 1)
    return found


class _Packing:
    """Bins by the room that is left in them."""

    def __init__(self, capacity: int) -> None:
        self.bins = 0
        self.steps: list[tuple[int, int, int]] = []
        """(first bin, bins, items for each of these), in the order in which items are taken."""
        self._capacity = capacity
        self._with_room: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """Room to groups of bins, as (first, count)."""
        self._rooms = 0
        """Bit r: there are bins with room r."""

    def add(self, length: int, count: int) -> None:
        """Add `count` items of a length."""
        while count:
            fitting = self._rooms >> length
            if fitting:
                room = (fitting & -fitting).bit_length() - 1 + length
                first, bins = self._taken(room)
            else:
                room, first = self._capacity, self.bins
                bins = -(-count // (room // length))
                self.bins += bins
            # A bin that was the tightest stays the tightest until no further item fits.
            each = room // length
            full, left = divmod(min(count, bins * each), each)
            used = full + (left > 0)
            self._fill(first, full, each, room - each * length)
            self._fill(first + full, used - full, left, room - left * length)
            self._keep(first + used, bins - used, room)
            count -= full * each + left

    def _fill(self, first: int, bins: int, each: int, room: int) -> None:
        if bins:
            self.steps.append((first, bins, each))
            self._keep(first, bins, room)

    def _keep(self, first: int, bins: int, room: int) -> None:
        if bins and room:
            self._with_room[room].append((first, bins))
            self._rooms |= 1 << room

    def _taken(self, room: int) -> tuple[int, int]:
        groups = self._with_room[room]
        taken = groups.pop()
        if not groups:
            self._rooms ^= 1 << room
        return taken
