"""The loss of a bigram count model: what a model must beat to have learned more than letter pairs."""

from __future__ import annotations

import numpy as np

from data_loading.data import Data
from data_loading.windows import windows_in
from experiment_utils.errors import UserError

LARGEST_VOCABULARY = 1024
_BLOCK = 1 << 22


def bigram_loss(data: Data, *, eval_tokens: int, seq_len: int) -> float:
    """Nats a token of P(next | token) = (count + 1) / (total + vocab_size), counted over all of train.

    Measured on the very pairs that an evaluation reads: the first ceil(eval_tokens / seq_len)
    windows of val, in order.

    Raises:
        UserError: the vocabulary is too large for a table of pairs.
    """
    vocab = data.vocab_size
    if vocab > LARGEST_VOCABULARY:
        raise UserError(
            f"a bigram table of {vocab:,} x {vocab:,} is too large; at most {LARGEST_VOCABULARY:,} ids",
            code="bigram-vocabulary-too-large",
        )
    counts = np.zeros(vocab * vocab, np.int64)
    for part in data.train_ranges:
        for begin in range(part.start, part.stop - 1, _BLOCK):
            counts += _pairs(data.train.tokens[begin : min(begin + _BLOCK + 1, part.stop)], vocab)
    table = counts.reshape(vocab, vocab).astype(np.float64)
    log_p = np.log((table + 1) / (table.sum(axis=1, keepdims=True) + vocab))
    left = min(data.windows("val", seq_len), -(-eval_tokens // seq_len))
    read = np.zeros(vocab * vocab, np.int64)
    for part in data.val_ranges:
        windows = min(left, windows_in(len(part), seq_len))
        read += _pairs(data.val.tokens[part.start : part.start + windows * seq_len + 1], vocab)
        left -= windows
    return float(-(read * log_p.ravel()).sum() / read.sum())


def _pairs(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """How often each (token, next) occurs, `(vocab * vocab,)`."""
    ids = tokens.astype(np.int64)
    return np.bincount(ids[:-1] * vocab + ids[1:], minlength=vocab * vocab)
