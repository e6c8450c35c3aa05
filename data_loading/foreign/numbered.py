"""Files numbered through in their names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def missing_numbers(numbers: Sequence[str]) -> str | None:
    """The first number that is missing between the smallest and the largest, as wide as they are."""
    there = sorted({int(number) for number in numbers})
    for one, other in pairwise(there):
        if other != one + 1:
            return f"{one + 1:0{len(numbers[0])}d}"
    return None
