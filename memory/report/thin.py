"""Fewer points of a long history, with every peak kept: what a plot of a thousand pixels can show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Column = Sequence[float | None]


def kept(columns: Sequence[Column], most: int) -> list[int]:
    """Indices of the points to keep, ascending: at most `most`, or all of them where there are no more.

    Kept are the first and the last point, of each column the places of its least and its greatest value,
    and of the first column the least and the greatest of every one of equally long stretches: a peak of
    one sample stays. As many points are spent where samples are dense, as they are near the limit.

    columns: all of one length, the most important first; None is not known.
    """
    count = len(columns[0]) if columns else 0
    if count <= most:
        return list(range(count))
    found = {0, count - 1}
    for column in columns:
        found.update(_extremes(column, 0, count))
    stretches = max(1, (most - len(found)) // 2)
    bounds = [number * count // stretches for number in range(stretches + 1)]
    for begin, end in pairwise(bounds):
        found.update(_extremes(columns[0], begin, end))
    return sorted(found)


def _extremes(column: Column, begin: int, end: int) -> list[int]:
    """The first places of the least and of the greatest value; none where no value is known."""
    known = [(value, index) for index in range(begin, end) if (value := column[index]) is not None]
    if not known:
        return []
    least = min(known)
    greatest = max(known, key=lambda pair: (pair[0], -pair[1]))
    return [least[1], greatest[1]]
