"""The best learning rate of a size, and the rates between which it is.

The best rate is the vertex of the parabola in log10 lr through the lowest mean loss and its two neighbours.
The interval ends, on each side, at the nearest rate whose loss is higher by more than seeds explain: a curve
with one valley has its lowest point between two such rates, whatever its shape. Nothing is assumed of the
shape because losses are steep below the best rate, flat at it, and end in a cliff: parabolas of such curves
have their vertex off to one side, and an interval that is found by them does not hold the truth
(benchmarks/analysis_coverage.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.fits.parabola import vertex
from analysis.rates.grid import Rate, Size

_LEVEL = 0.95
_NEAR = 1
"""Rates on each side of the lowest whose seeds count as noise: unstable rates have seeds of another kind."""
_FLAT_FACTOR = 2.95
"""3, less the rounding of a grid such as 0.001, 0.003, 0.01. Nearer rates differ by too little to be believed
where it is not known how much seeds differ.
"""
_EQUAL = 1e-12


@dataclass(frozen=True)
class Noise:
    """Standard deviation between seeds of the loss at rates near the best, and its degrees of freedom."""

    deviation: float
    freedom: int


@dataclass(frozen=True)
class Best:
    """The best rate of a size, with its interval."""

    size: Size
    lr: float | None
    """None: the size has too few rates, or no lowest loss."""
    low: float | None
    high: float | None
    """None: no rate on that side has a loss that is surely higher."""
    edge: str | None = None
    """`low` or `high`: the lowest loss is at the smallest or largest rate."""
    is_noise_known: bool = False
    why_not: str | None = None

    @property
    def is_inside(self) -> bool:
        return self.lr is not None and self.edge is None

    @property
    def interval(self) -> str:
        """`0.01 to 0.1`; `?` for an open end, and behind the interval where the noise of seeds is unknown."""
        low, high = ("?" if end is None else f"{end:.4g}" for end in (self.low, self.high))
        return f"{low} to {high}{'' if self.is_noise_known else ' ?'}"

    @property
    def awaited(self) -> tuple[float, ...]:
        """Rates next to or beyond a best edge whose runs have not ended."""
        good = self.size.good
        if self.edge is None or len(good) < 2:
            return ()
        if self.edge == "low":
            return tuple(rate for rate in self.size.pending if rate < good[1].lr)
        return tuple(rate for rate in self.size.pending if rate > good[-2].lr)

    @property
    def edge_words(self) -> str:
        """The side on which the best rate may be beyond the grid, or why there is none."""
        if self.edge is None:
            return self.why_not or ""
        which = "smallest" if self.edge == "low" else "largest"
        if self.awaited:
            shown = ", ".join(f"{rate:.3g}" for rate in self.awaited)
            return f"the {which} rate that is done is the best so far: {shown} next to it is not done"
        return f"the {which} rate is the best: the lowest point lies outside the grid"


def noise_of(sizes: Sequence[Size]) -> Noise | None:
    """Pooled over the lowest rate of each size and its neighbours; None where none of them has two seeds."""
    squares, freedom = 0.0, 0
    for size in sizes:
        if not size.good:
            continue
        lowest = int(np.argmin(size.y))
        for rate in size.good[max(0, lowest - _NEAR) : lowest + _NEAR + 1]:
            squares += float(np.var(rate.losses)) * len(rate.losses)
            freedom += len(rate.losses) - 1
    return Noise(math.sqrt(squares / freedom), freedom) if freedom else None


def best_of(size: Size, noise: Noise | None) -> Best:
    """Best rate of one size, and the rates between which it is.

    Args:
        noise: of the study; None where no rate near a best has two seeds.
    """
    good, y = size.good, size.y
    if len(good) < 3:
        why = f"{len(good)} rate{'s' * (len(good) != 1)} with a loss: needs >= 3"
        return Best(size, None, None, None, why_not=why)
    if float(np.ptp(y)) <= _EQUAL * float(np.abs(y).max()):
        return Best(size, None, None, None, why_not="all its losses are equal: there is no best")
    place = int(np.argmin(y))
    lowest = good[place]
    diverged = next((rate.lr for rate in size.rates if rate.has_diverged and rate.lr > lowest.lr), math.inf)
    below = [rate.lr for rate in good if rate.lr < lowest.lr and _is_worse(rate, lowest, noise)]
    above = [rate.lr for rate in good if rate.lr > lowest.lr and _is_worse(rate, lowest, noise)]
    low, high = max(below, default=None), min([*above, diverged])
    edge, lr = None, lowest.lr
    if place == 0:
        edge = "low"
    elif math.isinf(diverged) and place == len(good) - 1:
        edge = "high"
    elif place < len(good) - 1 and good[place + 1].lr < diverged:
        near = slice(place - 1, place + 2)
        found = vertex(size.x[near], y[near])
        lr = lr if found is None else 10 ** found[0]
    return Best(size, lr, low, None if math.isinf(high) else high, edge, noise is not None)


def _is_worse(rate: Rate, lowest: Rate, noise: Noise | None) -> bool:
    """Whether its loss is higher by more than seeds explain; where that is unknown, also far enough away."""
    more = rate.mean - lowest.mean
    if noise is None:
        factor = max(rate.lr / lowest.lr, lowest.lr / rate.lr)
        return more > 0 and factor >= _FLAT_FACTOR
    from scipy.special import stdtrit

    variance = sum(_variance(one, noise) / len(one.losses) for one in (rate, lowest))
    return more > float(stdtrit(noise.freedom, (1 + _LEVEL) / 2)) * math.sqrt(variance)


def _variance(rate: Rate, noise: Noise) -> float:
    """Variance of one run: as near the best rates, or that of its own seeds where they differ by more."""
    own = float(np.var(rate.losses, ddof=1)) if len(rate.losses) > 1 else 0.0
    return max(own, noise.deviation**2)
