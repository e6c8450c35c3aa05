"""Train and val as ranges of tokens: disjoint, val last, on a document border where there are enough."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

from conf import UserError
from data_loading.shards import Values

log = logging.getLogger("data_loading")

DOCUMENTS_FOR_A_BORDER = 100
_MOST_OFF = 2
"""A split may have so many times more or fewer tokens for the sake of a document's start."""


def split_ranges(n_tokens: int, documents: Values | None, val_fraction: float) -> tuple[range, range]:
    """(train, val) token ranges of one set; val is the last `val_fraction` of it.

    documents: uint64 starts. With 100 of them or more the border is the document start nearest to
    the fraction, unless that gave a split more than twice or less than half its tokens, which is
    warned of; else it falls on any token. Labels are taken from inside a range, so that no window
    crosses the border.

    Raises:
        UserError: not enough tokens for two ranges.
    """
    if n_tokens < 2:
        raise UserError(f"{n_tokens} tokens cannot be divided into train and val")
    border = min(max(n_tokens - round(n_tokens * val_fraction), 1), n_tokens - 1)
    if documents is not None and len(documents) >= DOCUMENTS_FOR_A_BORDER:
        start = _nearest_inner_start(documents, border, n_tokens)
        if start is None:
            _warn_inside_document(n_tokens, n_tokens - border)
        else:
            border = start
    return range(border), range(border, n_tokens)


def other_ranges(n_tokens: int, val: Sequence[range]) -> tuple[range, ...]:
    """The ranges of 0 to n_tokens that `val`, ascending and disjoint, leaves."""
    borders = [0, *(border for part in val for border in (part.start, part.stop)), n_tokens]
    between = (range(start, stop) for start, stop in zip(borders[::2], borders[1::2], strict=True))
    return tuple(part for part in between if part)


def _nearest_inner_start(documents: Values, border: int, n_tokens: int) -> int | None:
    """The start nearest to the border, never the first; the earlier one where two are as near.

    None where both would leave far more or far less of a split than the border does.
    """
    after = min(max(bisect_left(documents, border), 1), len(documents) - 1)
    before = max(after - 1, 1)
    near = [
        start
        for start in (int(documents[before]), int(documents[after]))
        if _are_alike(start, border) and _are_alike(n_tokens - start, n_tokens - border)
    ]
    return min(near, key=lambda start: (abs(start - border), start), default=None)


def _are_alike(tokens: int, wanted: int) -> bool:
    return wanted <= _MOST_OFF * tokens and tokens <= _MOST_OFF * wanted


@lru_cache(maxsize=16)
def _warn_inside_document(n_tokens: int, held_out: int) -> None:
    """Once for each border in a process."""
    log.warning(
        "no document starts near the last %s of %s tokens, which are held out: they begin inside a document, "
        "and its first part is trained on",
        f"{held_out:,}",
        f"{n_tokens:,}",
    )
