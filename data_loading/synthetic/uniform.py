"""uniform: each id is as likely as any other, independent of those before. A model can learn nothing."""

from __future__ import annotations

import math

import numpy as np

from data_loading.synthetic.counter_hash import CounterHash, scaled
from data_loading.synthetic.law import Law


class Uniform(Law):
    """Entropy: log of the vocabulary."""

    name = "uniform"

    def __init__(self, vocab_size: int, seed: int) -> None:
        super().__init__(vocab_size, seed)
        self._hash = CounterHash(self.name, vocab_size, seed)

    def spans(self, starts: np.ndarray, width: int) -> np.ndarray:
        return scaled(self._hash(starts[:, None] + np.arange(width)), self.vocab_size)

    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        return math.log(self.vocab_size)
