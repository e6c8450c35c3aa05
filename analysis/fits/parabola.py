"""The lowest point of a parabola through points round a minimum."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def vertex(x: Array, y: Array) -> tuple[float, float] | None:
    """(x, y) of the lowest point of the least-squares parabola; None where it does not open upwards."""
    if len(x) < 3 or float(np.ptp(x)) <= 0:
        return None
    centre, solving = _solver(tuple(x.tolist()))
    a, b, c = (solving @ y).tolist()
    if not a > 0:
        return None
    at = -b / (2 * a)
    return at + centre, c - b * b / (4 * a)


@functools.lru_cache(maxsize=1024)
def _solver(x: tuple[float, ...]) -> tuple[float, Array]:
    """(their mean, the (3, points) matrix that makes a, b and c of any y): draws ask for it over and over."""
    places = np.array(x)
    centre = float(places.mean())
    return centre, np.asarray(np.linalg.pinv(np.vander(places - centre, 3)))


def round_minimum(y: Array, reach: int) -> slice:
    """The places of up to `reach` points on each side of the lowest."""
    lowest = int(np.argmin(y))
    return slice(max(0, lowest - reach), lowest + reach + 1)
