"""Train and val as ranges of tokens: disjoint, val last, on a document border where there are enough."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from conf import UserError
from data_loading.shards import Values

DOCUMENTS_FOR_A_BORDER = 100


def split_ranges(n_tokens: int, documents: Values | None, val_fraction: float) -> tuple[range, range]:
    """(train, val) token ranges of one set; val is the last `val_fraction` of it.

    documents: uint64 starts. With 100 of them or more the border is the document start nearest to
    the fraction; else it falls on any token. Labels are taken from inside a range, so that no window
    crosses the border.

    Raises:
        UserError: not enough tokens for two ranges.
    """
    if n_tokens < 2:
        raise UserError(f"{n_tokens} tokens cannot be divided into train and val")
    border = min(max(n_tokens - round(n_tokens * val_fraction), 1), n_tokens - 1)
    if documents is not None and len(documents) >= DOCUMENTS_FOR_A_BORDER:
        border = _nearest_inner_start(documents, border)
    return range(border), range(border, n_tokens)


def other_ranges(n_tokens: int, val: Sequence[range]) -> tuple[range, ...]:
    """The ranges of 0 to n_tokens that `val`, ascending and disjoint, leaves."""
    borders = [0, *(border for part in val for border in (part.start, part.stop)), n_tokens]
    between = (range(start, stop) for start, stop in zip(borders[::2], borders[1::2], strict=True))
    return tuple(part for part in between if part)


def _nearest_inner_start(documents: Values, border: int) -> int:
    """The start nearest to the border, never the first; the earlier one where two are as near."""
    after = min(max(bisect_left(documents, border), 1), len(documents) - 1)
    before = max(after - 1, 1)
    return min(
        (int(documents[before]), int(documents[after])), key=lambda start: (abs(start - border), start)
    )
