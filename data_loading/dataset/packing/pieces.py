"""Pieces of the documents of a split, each of which fits a window, as a stream of blocks."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from data_loading.readers.mapped import map_of
from data_loading.tokens.lazy_array import Values, search
from data_loading.tokens.shards import Shards
from experiment_utils.errors import UserError

PIECES_OF_A_BLOCK = 1 << 17
_READ_STARTS = 1 << 18
_READ_TOKENS = 1 << 22


@dataclass(frozen=True)
class DocumentPieces:
    """Neighbouring tokens of one document each, in the order of the set."""

    starts: np.ndarray
    """First token of each, `(n,)` int64."""
    tokens: np.ndarray
    """Tokens of each, `(n,)` int64: the first seq_len are inputs, and up to `shift` more are labels only."""

    def __len__(self) -> int:
        return len(self.starts)


def pieces_of(documents: Iterator[np.ndarray], seq_len: int, shift: int) -> Iterator[DocumentPieces]:
    """Yield all pieces that have a label, in blocks of PIECES_OF_A_BLOCK; the last block is smaller.

    A document of n tokens has n - shift labels. A piece of it begins every seq_len tokens, as long as labels
    are left, and the last piece ends with it. documents: their borders, as `borders_of` yields them.
    """
    parts: list[DocumentPieces] = []
    room = PIECES_OF_A_BLOCK
    for borders in documents:
        lengths = np.diff(borders)
        counts = np.maximum(-((shift - lengths) // seq_len), 0)
        first = np.append(0, np.cumsum(counts))
        begin = 0
        while begin < first[-1]:
            end = min(begin + room, int(first[-1]))
            parts.append(_cut(borders, first, begin, end, seq_len, shift))
            room -= end - begin
            begin = end
            if room == 0:
                yield _joined(parts)
                parts, room = [], PIECES_OF_A_BLOCK
    if parts:
        yield _joined(parts)


def _cut(
    borders: np.ndarray, first: np.ndarray, begin: int, end: int, seq_len: int, shift: int
) -> DocumentPieces:
    """Return the pieces begin to end of these documents. first: first piece of each, and number of all."""
    numbers = np.arange(begin, end)
    document = np.searchsorted(first, numbers, side="right") - 1
    starts = borders[document] + (numbers - first[document]) * seq_len
    return DocumentPieces(starts, np.minimum(borders[document + 1] - starts, seq_len + shift))


def _joined(parts: list[DocumentPieces]) -> DocumentPieces:
    return DocumentPieces(
        np.concatenate([part.starts for part in parts]), np.concatenate([part.tokens for part in parts])
    )


def borders_of(
    ranges: Sequence[range],
    tokens: Values,
    documents: Values | None,
    eot_id: int | None,
    *,
    is_before: bool = False,
) -> Iterator[np.ndarray]:
    """Yield the borders (int64, ascending) of the documents of each range, in chunks.

    The last border of a chunk is the first one of the next, or the end of the range. The part of a document
    inside a range is a document.

    Args:
        ranges: Tokens to divide.
        tokens: Of the set.
        documents: Starts; None: documents end with eot_id, or begin with it (is_before).
        eot_id: The id between documents.
        is_before: Whether it is the first id of a document.

    Raises:
        UserError: the list of starts does not ascend.
    """
    for part in ranges:
        last = np.array([part.start])
        for starts in _starts_in(part, tokens, documents, eot_id, is_before=is_before):
            borders = np.concatenate([last, starts])
            if np.any(borders[1:] < borders[:-1]):
                raise UserError(
                    "the list of document starts does not ascend: it is damaged",
                    code="document-starts-damaged",
                )
            yield borders
            last = borders[-1:]
        yield np.array([last[0], part.stop])


def _starts_in(
    part: range, tokens: Values, documents: Values | None, eot_id: int | None, *, is_before: bool
) -> Iterator[np.ndarray]:
    """Yield the starts of documents inside a range, in chunks."""
    if documents is None:
        for begin in range(part.start, part.stop, _READ_TOKENS):
            block = tokens[begin : min(begin + _READ_TOKENS, part.stop)]
            yield np.flatnonzero(np.asarray(block) == eot_id) + (begin if is_before else begin + 1)
            _unmap(tokens)
        return
    first, last = (int(n) for n in search(documents, np.array([part.start, part.stop])))
    for begin in range(first, last, _READ_STARTS):
        yield np.asarray(documents[begin : min(begin + _READ_STARTS, last)]).astype(np.int64)
        _unmap(documents)


def _unmap(values: Values) -> None:
    """Unmap the pages that were read: they leave RSS and stay in the page cache."""
    parts = values.parts if isinstance(values, Shards) else [values] if isinstance(values, np.ndarray) else []
    for mapped in filter(None, map(map_of, parts)):
        mapped.madvise(mmap.MADV_DONTNEED)
