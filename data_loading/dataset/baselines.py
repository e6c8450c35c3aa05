"""Losses to compare a model with: that of a bigram count model, and the least that is possible.

A model must beat the first to have learned more than pairs of tokens.
"""

from __future__ import annotations

import numpy as np

from data_loading.dataset.split_data import Data
from data_loading.dataset.windows import Windows, windows_in
from experiment_utils.errors import UserError

LARGEST_VOCABULARY = 1024
_BLOCK = 1 << 22


def bigram_loss(data: Data, *, eval_tokens: int, seq_len: int) -> float:
    """Return nats per token of P(next | token) = (count + 1) / (total + vocab_size), counted over train.

    It is measured on the pairs that an evaluation reads: the first ceil(eval_tokens / seq_len) windows of
    val, in order.

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


def floor_loss(
    data: Data, *, eval_tokens: int, seq_len: int, shift: int = 1, masked: bool = False
) -> float | None:
    """Return the nats per label that no model's expected val loss is below; None if unknown, as for text.

    It is of the windows that an evaluation reads: the first ceil(eval_tokens / seq_len) of val, in order. A
    measured loss scatters about its expectation, so it can be slightly lower. masked: with
    `documents=masked`.
    """
    windows = Windows(data.val_ranges, seq_len, shift=shift)
    count = min(len(windows), -(-eval_tokens // seq_len))
    return data.val.floor_loss(windows.starts(np.arange(count)), seq_len, shift, masked=masked)


def _pairs(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """Return the count of each (token, next), `(vocab * vocab,)`."""
    ids = tokens.astype(np.int64)
    return np.bincount(ids[:-1] * vocab + ids[1:], minlength=vocab * vocab)
