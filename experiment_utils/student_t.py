"""Student's t distribution for whole degrees of freedom, exactly, with the standard library alone.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
"""

from __future__ import annotations

import math
from functools import lru_cache

_LARGEST = 1e9


def upper_tail(t: float, freedom: int) -> float:
    """Probability of a value above `t`. freedom: degrees of freedom, at least 1.

    Below 1e-15 it is 0: the sum it is the rest of has no more digits.
    """
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for number in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * number / (number + 1)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    outside = max(0.0, (1 - inside) / 2)
    return outside if t >= 0 else 1 - outside


@lru_cache(maxsize=1024)
def critical(tail: float, freedom: int) -> float:
    """The t above which lies a probability of `tail` (0 to 0.5), within rounding."""
    low, high = 0.0, _LARGEST
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, freedom) > tail else (low, middle)
    return high
