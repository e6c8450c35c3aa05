"""Files numbered through in their names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def missing_numbers(numbers: Sequence[str], first: int | None = None) -> str | None:
    """The first number that is missing up to the largest, as wide as they are. first: where they begin, if
    they all begin at one.
    """
    there = sorted({int(number) for number in numbers})
    if first is not None and there:
        there.insert(0, first - 1)
    for one, other in pairwise(there):
        if other != one + 1:
            return f"{one + 1:0{len(numbers[0])}d}"
    return None
