"""Train, test and val: disjoint ranges of tokens, val last, on a document border if there are enough."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from data_loading.tokens.lazy_array import Values
from experiment_utils.errors import UserError

log = logging.getLogger("data_loading")

DOCUMENTS_FOR_A_BORDER = 100
_MOST_STRATA = 1000
_MOST_OFF = 2
"""Most by which a split differs from what was requested, as a factor, so that it begins with a document."""


Share = float | int
"""Share of the tokens of a set: a fraction (float, below 1), or a number of tokens (int)."""


@dataclass(frozen=True)
class Splits:
    """Ranges of tokens, ascending and disjoint; together they are all tokens of a set."""

    train: tuple[range, ...]
    val: tuple[range, ...]
    test: tuple[range, ...] = ()


def split_ranges(n_tokens: int, documents: Values | None, val_fraction: float) -> tuple[range, range]:
    """Return (train, val) token ranges of one set; val is the last `val_fraction` of it.

    documents: uint64 starts. With 100 of them or more the border is the document start nearest to
    the fraction, unless that gave a split more than twice or less than half its tokens, which is logged;
    else it is at any token. Labels are read from inside a range, so that no window
    crosses the border.

    Raises:
        UserError: not enough tokens for two ranges.
    """
    if n_tokens < 2:
        raise UserError(f"{n_tokens} tokens cannot be divided into train and val", code="too-few-tokens")
    border = _border(range(n_tokens), documents, round(n_tokens * val_fraction))
    return range(border), range(border, n_tokens)


def split_set(
    n_tokens: int,
    documents: Values | None,
    val: Share,
    test: Share = 0,
    sources: Sequence[tuple[int, int]] = (),
) -> Splits:
    """Return the splits of one set, with the same share of each source: train, then test, then val.

    documents: uint64 starts. sources: tokens and documents of each, in their order. Neighbours count as
    one until they have 100 documents, as many as a border between documents takes, which is found as in
    `split_ranges`. val depends on `val` alone: a test part is taken from what was train.

    Raises:
        UserError: not enough tokens to hold out.
    """
    check_share("val", val)
    check_share("test", test)
    if n_tokens < 2:
        raise UserError(f"{n_tokens} tokens cannot be divided into train and val", code="too-few-tokens")
    kept = _strata(n_tokens, documents, sources)
    held_out: list[range] = []
    tested: list[range] = []
    if val:
        kept, held_out = hold_out(kept, documents, tokens_of(val, n_tokens))
    if test:
        kept, tested = hold_out(kept, documents, tokens_of(test, n_tokens))
    return Splits(_joined(kept), _joined(held_out), _joined(tested))


def check_share(name: str, share: Share | None) -> None:
    """Check a share. Raises UserError: it is neither a fraction below 1 nor a number of tokens."""
    is_count = type(share) is int and share >= 0
    is_fraction = isinstance(share, float) and 0 <= share < 1
    if share is not None and not is_count and not is_fraction:
        raise UserError(
            f"{name}={share}: expected a share of the tokens as a fraction below 1 (0.05), their number as "
            "a whole one (1_000_000), or 0 to hold nothing out",
            code="share-invalid",
        )


def tokens_of(share: Share, n_tokens: int) -> int:
    """Return a share as a number of tokens; a fraction is at least one, and leaves one."""
    return share if isinstance(share, int) else min(max(round(n_tokens * share), 1), n_tokens - 1)


def hold_out(
    parts: Sequence[range], documents: Values | None, tokens: int
) -> tuple[list[range], list[range]]:
    """Return (kept, held out): the last tokens of each part, in proportion to its length, `tokens` in all.

    Raises:
        UserError: the parts have fewer tokens.
    """
    there = sum(map(len, parts))
    if not 1 <= tokens < there:
        raise UserError(
            f"{tokens:,} tokens of {there:,} cannot be held out: expected 1 to {there - 1:,}",
            code="held-out-too-many",
        )
    kept, held_out = [], []
    before = 0
    for part in parts:
        after = before + len(part)
        wanted = tokens * after // there - tokens * before // there
        before = after
        if wanted == 0 or len(part) < 2:
            kept.append(part)
            continue
        border = _border(part, documents, wanted)
        kept.append(range(part.start, border))
        held_out.append(range(border, part.stop))
    return kept, held_out


def _strata(n_tokens: int, documents: Values | None, sources: Sequence[tuple[int, int]]) -> list[range]:
    """Return parts that are divided separately: sources, or neighbours together that have few documents."""
    if documents is None or len(sources) < 2 or sum(tokens for tokens, _ in sources) != n_tokens:
        return [range(n_tokens)]
    enough = max(DOCUMENTS_FOR_A_BORDER, len(documents) // _MOST_STRATA)
    strata, start, stop, count = [], 0, 0, 0
    for tokens, begun in sources:
        stop += tokens
        count += begun
        if count >= enough:
            strata.append(range(start, stop))
            start, count = stop, 0
    if start < n_tokens:
        first = strata.pop().start if strata else 0
        strata.append(range(first, n_tokens))
    return strata


def _border(part: range, documents: Values | None, held_out: int) -> int:
    """Return the first of the last `held_out` tokens of a part, never its first token."""
    border = min(max(part.stop - held_out, part.start + 1), part.stop - 1)
    if documents is None:
        return border
    starts = bisect_left(documents, part.stop) - bisect_left(documents, part.start)
    if starts < DOCUMENTS_FOR_A_BORDER:
        return border
    start = _nearest_inner_start(documents, border, part)
    if start is None:
        _warn_inside_document(len(part), part.stop - border)
        return border
    return start


def _joined(parts: list[range]) -> tuple[range, ...]:
    """Return the same tokens in as few ranges as possible."""
    joined: list[range] = []
    for part in parts:
        if joined and joined[-1].stop == part.start:
            part = range(joined.pop().start, part.stop)
        joined.append(part)
    return tuple(joined)


def other_ranges(n_tokens: int, val: Sequence[range]) -> tuple[range, ...]:
    """Return the ranges of 0 to n_tokens that `val`, ascending and disjoint, leaves."""
    borders = [0, *(border for part in val for border in (part.start, part.stop)), n_tokens]
    between = (range(start, stop) for start, stop in zip(borders[::2], borders[1::2], strict=True))
    return tuple(part for part in between if part)


def _nearest_inner_start(documents: Values, border: int, part: range) -> int | None:
    """Return the start nearest to the border, never the part's first; the earlier one of two equally near.

    None if both would leave far more or far less of a split than the border does.
    """
    first, last = (bisect_left(documents, end) for end in (part.start + 1, part.stop))
    after = min(max(bisect_left(documents, border), first), last - 1)
    before = max(after - 1, first)
    near = [
        start
        for start in (int(documents[before]), int(documents[after]))
        if _are_alike(start - part.start, border - part.start)
        and _are_alike(part.stop - start, part.stop - border)
    ]
    return min(near, key=lambda start: (abs(start - border), start), default=None)


def _are_alike(tokens: int, wanted: int) -> bool:
    return wanted <= _MOST_OFF * tokens and tokens <= _MOST_OFF * wanted


@lru_cache(maxsize=16)
def _warn_inside_document(n_tokens: int, held_out: int) -> None:
    """Log it once for each border in a process."""
    log.warning(
        "no document starts near the last %s of %s tokens, which are held out: they begin inside a document, "
        "and its first part is trained on",
        f"{held_out:,}",
        f"{n_tokens:,}",
    )
