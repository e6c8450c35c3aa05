"""A straight line through points, and how sure its slope is. scipy.stats would take seconds to load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Line:
    """reach: of the 95% interval of the slope to each side, by t; infinite of two points. r2: nan where y is
    the same everywhere.
    """

    slope: float
    intercept: float
    reach: float
    r2: float


def line_through(x: Array, y: Array) -> Line:
    """Least squares. x: at least two different values."""
    from scipy.special import stdtrit

    slope, intercept = np.polyfit(x, y, 1)
    left = float(((y - intercept - slope * x) ** 2).sum())
    total, freedom = float(((y - y.mean()) ** 2).sum()), len(x) - 2
    spread = float(((x - x.mean()) ** 2).sum())
    reach = float(stdtrit(freedom, 0.975)) * math.sqrt(left / freedom / spread) if freedom > 0 else math.inf
    return Line(float(slope), float(intercept), reach, 1 - left / total if total > 0 else math.nan)
