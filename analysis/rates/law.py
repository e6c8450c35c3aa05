"""The best learning rate over width: eta* = c d^-k, and how sure k is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.fits.line import line_through
from analysis.fits.uncertainty import Interval
from analysis.rates.best import Best

LEAST_SIZES = 3


@dataclass(frozen=True)
class RateLaw:
    """eta*(d) = factor d^exponent. r2: in logs. sizes: number of sizes."""

    factor: float
    exponent: Interval
    r2: float
    sizes: int

    @property
    def words(self) -> str:
        """`best lr = 0.41 * width^-0.98 (-1.2 to -0.8), R^2 0.990 over 4 sizes`."""
        between = f"{self.exponent.low:.2f} to {self.exponent.high:.2f}"
        formula = f"best lr = {self.factor:.4g} * width^{self.exponent.value or 0:.3f} ({between})"
        return f"{formula}, R^2 {self.r2:.3f} over {self.sizes} sizes"

    def at(self, width: float) -> float:
        """The rate that it predicts."""
        return self.factor * width ** (self.exponent.value or 0.0)


def rate_laws(found: Sequence[Best]) -> dict[str, RateLaw]:
    """Setup to the law of its sizes: rates of one optimizer tell nothing of those of another."""
    setups = dict.fromkeys(best.size.setup for best in found)
    laws = {setup: rate_law([best for best in found if best.size.setup == setup]) for setup in setups}
    return {setup: law for setup, law in laws.items() if law is not None}


def rate_law(found: Sequence[Best]) -> RateLaw | None:
    """Through the sizes whose best lies inside their grid; None of fewer than three widths.

    The interval of the exponent is that of the line's slope by t: what each size's own rate is off shows in
    how far the sizes are off the line.
    """
    known = [best for best in found if best.is_inside and best.size.width]
    if len({best.size.width for best in known}) < LEAST_SIZES:
        return None
    x = np.log10([best.size.width or 1.0 for best in known])
    y = np.log10([best.lr or math.nan for best in known])
    line = line_through(x, y)
    exponent = Interval(line.slope, line.slope - line.reach, line.slope + line.reach)
    return RateLaw(10**line.intercept, exponent, line.r2, len(known))
