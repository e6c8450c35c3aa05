"""Pattern of constant weights: the source at each position, so that no prefix is off by a whole sample.

Source i of weight a_i / A is due its k-th sample (from 0) at a fluid time from k A / a_i to (k + 1) A / a_i.
Each sample gets a slot that this interval touches; the one whose interval ends first comes first
(earliest deadline first; Liu and Layland, 1973; Steiner and Yeomans, 1993): then every source has floor or
ceil of its share of every prefix. The slots repeat after A samples, so that a table of A of them is enough.
Largest remainders alone fail: a source can have fewer samples in a longer prefix (the Alabama paradox).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np


class Pattern:
    """Sources in proportion to weights: whole numbers, at most a million in all; 0: not read."""

    def __init__(self, weights: Sequence[int]) -> None:
        common = math.gcd(*weights)
        self.weights = np.array(weights, np.int64) // common
        self.period = int(self.weights.sum())
        self._source, self._rank = _slots(tuple(self.weights.tolist()))

    def at(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the source at each position (int64), and the samples of it before, int64 both."""
        periods, slots = np.divmod(positions, self.period)
        sources = self._source[slots].astype(np.int64)
        return sources, periods * self.weights[sources] + self._rank[slots]

    def counts(self, length: int) -> np.ndarray:
        """Return the samples of each source among the first `length`, int64 (sources,)."""
        periods, rest = divmod(length, self.period)
        within = np.bincount(self._source[:rest], minlength=len(self.weights))
        counts: np.ndarray = periods * self.weights + within
        return counts

    def place(self, source: int, sample: int) -> int:
        """Return the position of a source's sample, counted from 0; its weight is above 0."""
        periods, rest = divmod(sample, int(self.weights[source]))
        return periods * self.period + int(np.flatnonzero(self._source == source)[rest])


@lru_cache(maxsize=16)
def _slots(weights: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return source and samples of it before this one, for each slot of a period, uint16 and int32."""
    period = sum(weights)
    slots = np.empty(period, np.uint16)
    ranks = np.empty(period, np.int32)
    released: dict[int, list[tuple[int, int]]] = {}
    ready = [(-(-period // weight), i) for i, weight in enumerate(weights) if weight]
    taken = [0] * len(weights)
    heapq.heapify(ready)
    for slot in range(period):
        for due in released.pop(slot, ()):
            heapq.heappush(ready, due)
        _, i = heapq.heappop(ready)
        slots[slot], ranks[slot] = i, taken[i]
        taken[i] = k = taken[i] + 1
        weight = weights[i]
        if k < weight:
            # The next one must be from slot floor(k A / a) on, and before ceil((k + 1) A / a).
            due = (-(-(k + 1) * period // weight), i)
            release = k * period // weight
            if release > slot + 1:
                released.setdefault(release, []).append(due)
            else:
                heapq.heappush(ready, due)
    return slots, ranks
