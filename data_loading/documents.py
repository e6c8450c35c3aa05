"""Where documents begin in windows: their starts in a set, or the id between them where there is no list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_loading.tokens import Tokens
from data_loading.values import search, take
from experiment_utils.errors import UserError

_READ_TOKENS = 1 << 22
_MOST_KNOWN = 64
_known: dict[tuple[str, tuple[int, ...]], int | None] = {}
"""Which of some ids comes first in tokens of a fingerprint: it may take reading all of them."""


@dataclass(frozen=True)
class Separator:
    """An id between documents; None where a list says where they start.

    is_before: it is the first of a document (llm.c), else the last.
    """

    id: int | None
    is_before: bool = False


def separator_of(
    tokens: Tokens, eot_id: int | None, bos_id: int | None = None, *, required: bool = True
) -> Separator:
    """The id between the documents of tokens.

    Args:
        tokens: Of a split.
        eot_id: End-of-text id of the tokenizer, None where nothing says.
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
            "says where its documents begin. Take documents=across, or tokenize again",
            code="document-starts-unknown",
        )
    found = _first_in(tokens, tuple(dict.fromkeys(ids)))
    if found is None and required:
        named = " or ".join(f"{number:,}" for number in dict.fromkeys(ids))
        raise UserError(
            f"{tokens.name} has no list of document starts, and the id {named} that would be between "
            "documents is nowhere in it. Take documents=across, or give the tokenizer that it was made with",
            code="separator-not-found",
        )
    number = ids[0] if found is None else found
    if tokens.begin_ids or number != eot_id:
        return Separator(number, is_before=True)
    last = len(tokens.tokens) - 1
    return Separator(number, is_before=tokens.tokens[0] == number and tokens.tokens[last] != number)


def _first_in(tokens: Tokens, ids: tuple[int, ...]) -> int | None:
    """The id that the tokens begin with; else the first of these that occurs where any of them does."""
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
    """Of a set with a list of them, or else with an id between documents."""

    def __init__(self, token_set: Tokens, separator: Separator) -> None:
        self._tokens, self._separator = token_set, separator  # the starts themselves would be pickled whole

    def marks(self, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """`rows.shape` of bool: tokens with which a document begins; the first of a row always does.

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
