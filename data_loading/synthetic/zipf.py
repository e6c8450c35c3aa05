"""zipf: ids as unequal as words, independent of those before. A model can learn their frequencies only.

The r-th of them, r = 1, 2 ..., has a probability that goes with 1 / (r + 2.7), and is the id r - 1: Zipf's
law as Mandelbrot amended it, with the number that fits English words (Piantadosi, 2014).
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from data_loading.synthetic.counter_hash import BITS, CounterHash
from data_loading.synthetic.law import Law

_OFFSET = 2.7
_ONE = 1 << BITS


class Zipf(Law):
    """Floor: the entropy of the probabilities."""

    name = "zipf"

    def __init__(self, vocab_size: int, seed: int) -> None:
        super().__init__(vocab_size, seed)
        self._hash = CounterHash(self.name, vocab_size, seed)

    @property
    def probabilities(self) -> np.ndarray:
        """Probability of each id, float64 `(vocab_size,)`, descending."""
        weights = 1 / (np.arange(1, self.vocab_size + 1) + _OFFSET)
        return weights / math.fsum(weights)  # the same to the last digit on every machine

    @cached_property
    def _alias(self) -> tuple[np.ndarray, np.ndarray]:
        return alias_table(self.probabilities)

    def spans(self, starts: np.ndarray, width: int) -> np.ndarray:
        keep, other = self._alias
        drawn = self._hash(starts[:, None] + np.arange(width))
        drawn *= np.uint64(self.vocab_size)
        column = (drawn >> np.uint64(BITS)).view(np.int64)
        drawn &= np.uint64(_ONE - 1)
        return np.where(drawn < keep[column], column, other[column])

    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        return float(-(self.probabilities * np.log(self.probabilities)).sum())


def alias_table(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two numbers a column, by which one draw gives an id of these probabilities.

    A draw chooses a column, each as likely. It is the column's own id if the rest of the draw is below `keep`
    (uint64, of 2**32), else `other` (int64) (Walker, 1977; made as by Vose, 1991).
    """
    n = len(probabilities)
    shares = (probabilities * n).tolist()
    keep, other = [float(1)] * n, list(range(n))
    small = [i for i, share in enumerate(shares) if share < 1]
    large = [i for i, share in enumerate(shares) if share >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], other[low] = shares[low], high
        shares[high] -= 1 - shares[low]
        if shares[high] < 1:
            small.append(large.pop())
    return np.round(np.array(keep) * _ONE).astype(np.uint64), np.array(other)
