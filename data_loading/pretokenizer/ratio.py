"""How much of something a whole holds, from samples of it: the ratio estimate and its error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiment_utils.student_t import critical


@dataclass(frozen=True)
class Estimate:
    """total: of the whole. variance: of that estimate; None where the samples do not tell it."""

    total: float
    variance: float | None
    degrees: int


def ratio_estimate(sizes: Sequence[float], amounts: Sequence[float], whole: float) -> Estimate:
    """The amount in a whole of size `whole`, from samples of such sizes that hold such amounts.

    The whole is taken to hold as much for its size as the samples together. Its variance is that of
    the amounts around this ratio, less the part of the whole that was looked at: Cochran, Sampling
    Techniques, 3rd ed., 1977, sections 2.11 and 6.4. Samples drawn one from each of equal stretches
    are at least as good as those drawn from anywhere, for which it is derived (section 8.6).
    """
    size, amount = np.asarray(sizes, float), np.asarray(amounts, float)
    if not size.sum():
        return Estimate(0.0, None, 0)
    ratio = amount.sum() / size.sum()
    looked_at = min(1.0, size.sum() / whole) if whole else 1.0
    count = len(size)
    if looked_at > 0.999_999:
        return Estimate(float(amount.sum()), 0.0, max(1, count - 1))
    if count < 2:
        return Estimate(float(ratio * whole), None, 0)
    spread = np.sum((amount - ratio * size) ** 2) / (count - 1)
    of_ratio = (1 - looked_at) * spread / (count * size.mean() ** 2)
    return Estimate(float(ratio * whole), float(of_ratio * whole**2), count - 1)


def half_width(estimates: Sequence[Estimate]) -> float | None:
    """Of the 95% interval around the sum of the estimates; None where one of them has no error."""
    variances = [found.variance for found in estimates if found.variance is not None]
    if len(variances) < len(estimates):
        return None
    # Of several, the fewest degrees that have a part in it: too wide rather than too narrow.
    degrees = min((found.degrees for found in estimates if found.variance), default=1)
    return critical(0.025, degrees) * float(np.sqrt(sum(variances)))
