"""Fewer points of a long history, with every peak kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Amounts = Sequence[float | None]


def kept(columns: Sequence[Amounts], most: int) -> list[int]:
    """Choose the points to keep.

    Kept are the first and the last point, the extremes of each column, and those of the first column in every
    stretch of equally many points: a peak of one sample stays.

    Args:
        columns: Values of one length, the most important column first. None is unknown.
        most: The number of points to keep at most.

    Returns:
        Indices, ascending; all of them if there are no more than `most`.
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


def _extremes(column: Amounts, begin: int, end: int) -> list[int]:
    """The first places of the least and of the greatest value; empty if no value is known."""
    known = [(value, index) for index in range(begin, end) if (value := column[index]) is not None]
    if not known:
        return []
    return [min(known)[1], max(known, key=lambda pair: (pair[0], -pair[1]))[1]]
