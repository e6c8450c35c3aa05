"""What a kind of synthetic tokens is: ids as a function of their index, and the entropy that is in them."""

from __future__ import annotations

import abc
from typing import ClassVar

import numpy as np


class Law(abc.ABC):
    """Ids in [0, vocab_size), decided by the seed.

    document_tokens: tokens of a document, each of the same length; None: there are none.
    tokens_at_once: that are computed together: few enough to stay in the processor's cache.
    """

    name: ClassVar[str]
    document_tokens: ClassVar[int | None] = None
    tokens_at_once: ClassVar[int] = 1 << 15

    def __init__(self, vocab_size: int, seed: int) -> None:
        self.vocab_size, self.seed = vocab_size, seed

    @abc.abstractmethod
    def spans(self, starts: np.ndarray, width: int) -> np.ndarray:
        """Ids, `(len(starts), width)` of integers: from each start (int64) on."""

    @abc.abstractmethod
    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        """The least expected loss, nats a label, of a model that sees of a window its inputs alone.

        An average over all labels of the windows of `seq_len` inputs that begin at these tokens (int64); the
        label of an input stands `shift` tokens on. It holds for a model that knows the law, the seed's tables
        and the place of the window, and so for every model; the losses on so many labels scatter about it.
        masked: a window's documents are kept apart, and labels across their borders do not count. None: not
        known for this shift.
        """
