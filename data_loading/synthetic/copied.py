"""copy: random strings, each followed by its copy. Half of the labels cost a model that looks back nothing.

A document is 64 ids, each as likely as any other, and then the same 64 again.
"""

from __future__ import annotations

import math

import numpy as np

from data_loading.synthetic.counter_hash import CounterHash, scaled
from data_loading.synthetic.law import Law

STRING_TOKENS = 64


class Copy(Law):
    """Strings and their copies.

    Floor: log of the vocabulary for each label of a string, and for each label of a copy whose original is
    not among the inputs up to its own; 0 for the others.
    """

    name = "copy"
    document_tokens = 2 * STRING_TOKENS

    def __init__(self, vocab_size: int, seed: int) -> None:
        super().__init__(vocab_size, seed)
        self._hash = CounterHash(self.name, vocab_size, seed)

    def spans(self, starts: np.ndarray, width: int) -> np.ndarray:
        indices = starts[:, None] + np.arange(width)
        document, place = np.divmod(indices, self.document_tokens)
        return scaled(self._hash(document * STRING_TOKENS + place % STRING_TOKENS), self.vocab_size)

    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        """Return the floor. Half of the labels are free if windows of n * 128 begin with documents."""
        phases, times = np.unique(starts % self.document_tokens, return_counts=True)
        label = np.arange(shift, shift + seq_len)
        places = phases[:, None] + label
        is_free = (
            (places % self.document_tokens >= STRING_TOKENS)
            & (label >= STRING_TOKENS)  # the original is not before the window
            & (shift <= STRING_TOKENS)  # nor behind the label's own input
        )
        counts = np.ones(places.shape, bool)
        if masked:
            counts = places // self.document_tokens == (places - shift) // self.document_tokens
        labels = times @ counts.sum(axis=1)
        costly = times @ (counts & ~is_free).sum(axis=1)
        return float(costly / labels * math.log(self.vocab_size)) if labels else None
