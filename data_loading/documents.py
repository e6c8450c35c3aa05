"""Where documents begin in windows: their starts in a set, or the token behind each end-of-text id."""

from __future__ import annotations

import numpy as np

from conf import UserError
from data_loading.tokens import Tokens
from data_loading.values import search, take


def check_documents(tokens: Tokens, eot_id: int | None) -> None:
    """Raises UserError: nothing says where documents begin."""
    if tokens.documents is None and eot_id is None:
        raise UserError(
            f"{tokens.name} has neither a list of document starts nor an end-of-text id, so that nothing "
            "says where its documents begin. Take documents=across, or tokenize again"
        )


class DocumentStarts:
    """Of a set with a list of them, or else with an end-of-text id behind each document."""

    def __init__(self, token_set: Tokens, eot_id: int | None) -> None:
        """Raises UserError: neither says where documents begin."""
        check_documents(token_set, eot_id)
        self._tokens, self._eot_id = token_set, eot_id  # the starts themselves would be pickled whole

    def marks(self, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """`rows.shape` of bool: tokens with which a document begins; the first of a row always does.

        starts: `(n,)` int64, tokens at which the rows begin. rows: `(n, width)`, their tokens.
        """
        marks = np.zeros(rows.shape, bool)
        marks[:, 0] = True
        documents = self._tokens.documents
        if documents is None:
            marks[:, 1:] |= rows[:, :-1] == self._eot_id
            return marks
        width = rows.shape[1]
        first, last = search(documents, starts), search(documents, starts + width)
        counts = last - first
        row = np.repeat(np.arange(len(starts)), counts)
        place = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        marks[row, take(documents, place).astype(np.int64) - starts[row]] = True
        return marks
