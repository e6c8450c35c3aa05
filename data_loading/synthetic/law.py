"""Law: interface of a kind of synthetic tokens, ids as a function of their index, and their entropy."""

from __future__ import annotations

import abc
from typing import ClassVar

import numpy as np


class Law(abc.ABC):
    """Ids in [0, vocab_size), as a function of index and seed."""

    name: ClassVar[str]
    document_tokens: ClassVar[int | None] = None
    """Tokens of each document; None: no documents."""
    tokens_at_once: ClassVar[int] = 1 << 15
    """Tokens that are computed together: they fit into the processor's cache."""

    def __init__(self, vocab_size: int, seed: int) -> None:
        self.vocab_size, self.seed = vocab_size, seed

    @abc.abstractmethod
    def spans(self, starts: np.ndarray, width: int) -> np.ndarray:
        """Return ids, `(len(starts), width)` of integers, from each start (int64) on."""

    @abc.abstractmethod
    def floor_loss(self, starts: np.ndarray, seq_len: int, shift: int, *, masked: bool) -> float | None:
        """Return the least expected loss (nats a label) of a model that sees of a window its inputs alone.

        It holds for a model that knows the law, the seed's tables and the place of the window, and so for
        every model. Measured losses scatter about it.

        Args:
            starts: First tokens of the windows, int64.
            seq_len: Inputs of a window; the result is an average over all labels.
            shift: Tokens from an input to its label.
            masked: The documents of a window are separate, and labels across their borders do not count.

        Returns:
            The loss; None if it is unknown for this shift.
        """
