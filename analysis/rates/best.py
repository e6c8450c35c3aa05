"""The best learning rate of a size: the vertex of a parabola in log10 lr through the points round the lowest.

How many points are taken round it is a choice: one, two and three on each side all are, the middle of
their vertices is the answer, and the interval holds all of them. It also holds what seeds do: losses are
drawn anew within their deviation, and everything is found again. A parabola through all points of a sweep
is no choice: far from its lowest point a curve of losses is none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.fits.parabola import round_minimum, vertex
from analysis.rates.grid import Size, seed_deviation

Array = np.ndarray[Any, np.dtype[np.float64]]
REACHES = (1, 2, 3)
DRAWS = 1000
_LEVEL = 0.95
_ROUND_CUBIC = 3
_EQUAL = 1e-12


@dataclass(frozen=True)
class Noise:
    """deviation: of one run's loss. freedom: how many degrees it is known by. from_seeds: else from how far
    losses lie off a smooth curve.
    """

    deviation: float
    freedom: int
    from_seeds: bool


@dataclass(frozen=True)
class Best:
    """lr: None where the size has too few rates. low, high: None on the side where the grid ends before the
    losses rise. edge: `low` or `high` where the lowest loss is the outermost rate. vertices: by the points
    taken on each side. drawn: log10 lr of each draw, nan where it found none.
    """

    size: Size
    lr: float | None
    low: float | None
    high: float | None
    edge: str | None
    vertices: dict[int, float]
    drawn: Array
    why_not: str | None = None

    @property
    def is_inside(self) -> bool:
        return self.lr is not None and self.edge is None

    @property
    def awaited(self) -> tuple[float, ...]:
        """Where the edge is the best: rates beside or beyond it whose runs have not come to their end."""
        good = self.size.good
        if self.edge is None or len(good) < 2:
            return ()
        if self.edge == "low":
            return tuple(rate for rate in self.size.pending if rate < good[1].lr)
        return tuple(rate for rate in self.size.pending if rate > good[-2].lr)

    @property
    def edge_words(self) -> str:
        """Where the best may lie beyond what was tried, and why there is none."""
        if self.edge is None:
            return self.why_not or ""
        which = "smallest" if self.edge == "low" else "largest"
        if self.awaited:
            shown = ", ".join(f"{rate:.3g}" for rate in self.awaited)
            return f"the {which} rate that is done is the best so far: {shown} beside it is not done"
        return f"the {which} rate is the best: the lowest point lies outside the grid"


def noise_of(sizes: Sequence[Size]) -> Noise | None:
    """Over seeds where any rate has two; else from what a cubic leaves of the points round each lowest."""
    of_seeds = seed_deviation(sizes)
    if of_seeds is not None:
        return Noise(*of_seeds, from_seeds=True)
    squares, freedom = 0.0, 0
    for size in sizes:
        if len(size.good) < 5:
            continue
        near = round_minimum(size.y, _ROUND_CUBIC)
        x, y = size.x[near], size.y[near]
        if len(x) < 5:
            continue
        left = y - np.polyval(np.polyfit(x - x.mean(), y, 3), x - x.mean())
        squares += float((left**2).sum())
        freedom += len(x) - 4
    return Noise(math.sqrt(squares / freedom), freedom, from_seeds=False) if freedom else None


def best_of(size: Size, noise: Noise | None, *, draws: int = DRAWS, seed: int = 0) -> Best:
    """Of one size."""
    nothing = np.full(draws, math.nan)
    if len(size.good) < 3:
        why = f"{len(size.good)} rate{'s' * (len(size.good) != 1)} with a loss: needs >= 3"
        return Best(size, None, None, None, None, {}, nothing, why)
    x, y = size.x, size.y
    if float(np.ptp(y)) <= _EQUAL * float(np.abs(y).max()):
        return Best(size, None, None, None, None, {}, nothing, "all its losses are equal: there is no best")
    lowest = int(np.argmin(y))
    vertices = _vertices(x, y)
    drawn = _drawn(size, noise, draws, seed)
    known = drawn[np.isfinite(drawn)]
    tails = (
        [10.0**at for at in np.quantile(known, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])] if len(known) else []
    )
    # seeds may have made the outermost rate the lowest one
    if lowest == 0:
        return Best(size, size.good[0].lr, None, max([size.good[1].lr, *tails]), "low", {}, nothing)
    if lowest == len(y) - 1 and not any(
        rate.has_diverged and rate.lr > size.good[-1].lr for rate in size.rates
    ):
        return Best(size, size.good[-1].lr, min([size.good[-2].lr, *tails]), None, "high", {}, nothing)
    if not vertices:  # the largest rate that did not diverge
        above = next((rate.lr for rate in size.rates if rate.lr > size.good[lowest].lr), None)
        low = min([size.good[lowest - 1].lr, *tails])
        return Best(size, size.good[lowest].lr, low, above, None, {}, nothing)
    found = {reach: 10**value for reach, value in vertices.items()}
    every = [*found.values(), *tails]
    return Best(
        size, float(10 ** np.median([*vertices.values()])), min(every), max(every), None, found, drawn
    )


def _vertices(x: Array, y: Array) -> dict[int, float]:
    """Points on each side -> log10 lr of the vertex, of those that lie among their points."""
    found = {}
    for reach in REACHES:
        near = round_minimum(y, reach)
        lowest = vertex(x[near], y[near])
        if lowest is not None and x[near][0] <= lowest[0] <= x[near][-1]:
            found[reach] = lowest[0]
    return found


def _drawn(size: Size, noise: Noise | None, draws: int, seed: int) -> Array:
    """log10 lr of losses drawn anew; at the outermost rate where a draw is lowest there."""
    if noise is None or noise.deviation == 0:
        return np.full(draws, math.nan)
    generator = np.random.default_rng(seed)
    x, y = size.x, size.y
    spread = noise.deviation / np.sqrt([len(rate.losses) for rate in size.good])
    found = []
    for _ in range(draws):
        # how large the deviation is, is itself known by few runs only
        factor = math.sqrt(noise.freedom / generator.chisquare(noise.freedom))
        moved = y + factor * spread * generator.normal(size=len(y))
        vertices = _vertices(x, moved)
        found.append(
            list(vertices.values())[int(generator.integers(len(vertices)))]
            if vertices
            else float(x[np.argmin(moved)])
        )
    return np.array(found)
