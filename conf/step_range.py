"""A range of steps as people write it: `10:20`, both of them in it; `10` alone."""

from __future__ import annotations

import re

_RANGE = re.compile(r"(\d+)(?::(\d+))?")
EXPECTED = "expected the first and the last step, such as 10:20, counted from 1"


def parse_steps(text: str) -> range:
    """The steps, counted from 1.

    Raises:
        ValueError: it is no such range; says what was expected.
    """
    found = _RANGE.fullmatch(text.strip())
    first = int(found[1]) if found else 0
    last = int(found[2] or found[1]) if found else 0
    if not 1 <= first <= last:
        raise ValueError(EXPECTED)
    return range(first, last + 1)
