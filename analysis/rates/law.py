"""The best learning rate over width: eta* = c d^-k, and how sure k is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.fits.line import line_through
from analysis.fits.trust import Interval
from analysis.rates.best import Best

LEAST_SIZES = 3


@dataclass(frozen=True)
class RateLaw:
    """eta*(d) = factor d^exponent. r2: in logs. sizes: how many it stands on."""

    factor: float
    exponent: Interval
    r2: float
    sizes: int

    def at(self, width: float) -> float:
        """The rate that it foretells."""
        return self.factor * width ** (self.exponent.value or 0.0)


def rate_law(found: Sequence[Best]) -> RateLaw | None:
    """Through the sizes whose best lies inside their grid; None of fewer than three widths.

    The interval of the exponent holds both what the sizes lie off a line (t, with few degrees of freedom) and
    what each size's own rate may be.
    """
    known = [best for best in found if best.is_inside and best.size.width]
    if len({best.size.width for best in known}) < LEAST_SIZES:
        return None
    x = np.log10([best.size.width or 1.0 for best in known])
    y = np.log10([best.lr or math.nan for best in known])
    line = line_through(x, y)
    low, high = line.slope - line.reach, line.slope + line.reach
    drawn = np.array([best.drawn for best in known])
    drawn = drawn[:, np.isfinite(drawn).all(axis=0)]
    if drawn.shape[1]:
        centred = x - x.mean()
        slopes = centred @ drawn / (centred @ centred)
        tails = np.quantile(slopes, [0.025, 0.975])
        low, high = min(low, float(tails[0])), max(high, float(tails[1]))
    return RateLaw(10**line.intercept, Interval(line.slope, low, high), line.r2, len(known))
