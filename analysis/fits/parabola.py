"""The lowest point of a parabola through points round a minimum."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def vertex(x: Array, y: Array) -> tuple[float, float] | None:
    """(x, y) of the lowest point of the least-squares parabola; None where it does not open upwards."""
    if len(x) < 3 or float(np.ptp(x)) <= 0:
        return None
    centre = float(x.mean())
    a, b, c = np.polyfit(x - centre, y, 2).tolist()
    if not a > 0:
        return None
    at = -b / (2 * a)
    return at + centre, c - b * b / (4 * a)


def round_minimum(y: Array, reach: int) -> slice:
    """The places of up to `reach` points on each side of the lowest."""
    lowest = int(np.argmin(y))
    return slice(max(0, lowest - reach), lowest + reach + 1)
