"""Starts of documents in windows: from the list of a set, or by the id between documents without a list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_loading.tokens.lazy_array import search, take
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError

_READ_TOKENS = 1 << 22
_MOST_KNOWN = 64
_known: dict[tuple[str, tuple[int, ...]], int | None] = {}
"""The first of some ids in the tokens of a fingerprint: finding it can mean reading all of them."""


@dataclass(frozen=True)
class Separator:
    """The id between documents."""

    id: int | None
    """None: the set has a list of document starts."""
    is_before: bool = False
    """Whether it is the first id of a document (llm.c), else the last."""


def separator_of(
    tokens: Tokens, eot_id: int | None, bos_id: int | None = None, *, required: bool = True
) -> Separator:
    """Return the id between the documents of tokens.

    Args:
        tokens: Of a split.
        eot_id: End-of-text id of the tokenizer; None if unknown.
        bos_id: Its begin-of-text id.
        required: Whether tokens in which no such id occurs are an error.

    Raises:
        UserError: Nothing says where documents begin.
    """
    if tokens.documents is not None:
        return Separator(None)
    ids = [number for number in (eot_id, *tokens.begin_ids, bos_id) if number is not None]
    if not ids:
        raise UserError(
            f"{tokens.name} has neither a list of document starts nor an end-of-text id, so that nothing "
            "says where its documents begin. Use documents=across, or tokenize again",
            code="document-starts-unknown",
        )
    found = _first_in(tokens, tuple(dict.fromkeys(ids)))
    if found is None and required:
        named = " or ".join(f"{number:,}" for number in dict.fromkeys(ids))
        raise UserError(
            f"{tokens.name} has no list of document starts, and the id {named} that would be between "
            "documents is nowhere in it. Use documents=across, or give the tokenizer that it was made with",
            code="separator-not-found",
        )
    number = ids[0] if found is None else found
    if tokens.begin_ids or number != eot_id:
        return Separator(number, is_before=True)
    last = len(tokens.tokens) - 1
    return Separator(number, is_before=tokens.tokens[0] == number and tokens.tokens[last] != number)


def _first_in(tokens: Tokens, ids: tuple[int, ...]) -> int | None:
    """Return the id that the tokens begin with, else the first one that occurs in the earliest block."""
    key = (tokens.fingerprint, ids)
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = _search(tokens, ids)
    return _known[key]


def _search(tokens: Tokens, ids: tuple[int, ...]) -> int | None:
    if not len(tokens.tokens) or int(tokens.tokens[0]) in ids:
        return int(tokens.tokens[0]) if len(tokens.tokens) else None
    for begin in range(0, len(tokens.tokens), _READ_TOKENS):
        block = np.asarray(tokens.tokens[begin : begin + _READ_TOKENS])
        for number in ids:
            if (block == number).any():
                return number
    return None


class DocumentStarts:
    """Starts of documents of a set, which has a list of them, or else an id between documents."""

    def __init__(self, token_set: Tokens, separator: Separator) -> None:
        self._tokens, self._separator = token_set, separator  # the starts themselves would be pickled whole

    def marks(self, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return `rows.shape` of bool: tokens that begin a document; the first one of a row always does.

        starts: `(n,)` int64, tokens at which the rows begin. rows: `(n, width)`, their tokens.
        """
        marks = np.zeros(rows.shape, bool)
        marks[:, 0] = True
        if self._separator.id is not None:
            between = rows == self._separator.id
            marks[:, 1:] |= between[:, 1:] if self._separator.is_before else between[:, :-1]
            return marks
        documents = self._tokens.documents
        assert documents is not None
        width = rows.shape[1]
        first, last = search(documents, starts), search(documents, starts + width)
        counts = last - first
        row = np.repeat(np.arange(len(starts)), counts)
        place = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        marks[row, take(documents, place).astype(np.int64) - starts[row]] = True
        return marks
