"""The lowest loss that any run had at each compute, and the law of that: Hoffmann et al. 2022, approach 1.

Points of one run follow each other, so intervals come of drawing whole runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.fits.power import PowerLaw
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted

Array = np.ndarray[Any, np.dtype[np.float64]]
_POINTS = 60
LEAST_POINTS = 4
"""For a law of three numbers."""


@dataclass(frozen=True)
class Curve:
    """x ascending, y: of one run, finite."""

    name: str
    x: Array
    y: Array

    @classmethod
    def of(cls, name: str, x: Array, y: Array) -> Curve:
        """Without what is not finite or not above 0."""
        known = np.isfinite(x) & np.isfinite(y) & (x > 0)
        order = np.argsort(x[known], kind="stable")
        return cls(name, x[known][order], y[known][order])


@dataclass(frozen=True)
class Envelope:
    """x, y: points of it, ascending; who: place of the run that it is of, in each."""

    x: Array
    y: Array
    who: Array


def envelope(curves: Sequence[Curve]) -> Envelope:
    """On a grid of equal ratios, from where a second run begins to where the last but one ends being lowest.

    Each curve is a line between its points, over log x. A curve counts where it has points on both sides.

    Raises:
        UserError: fewer than two curves, or they do not cross.
    """
    whole = [curve for curve in curves if len(curve.x) > 1]
    if len(whole) < 2:
        raise UserError(f"an envelope needs >= 2 runs with curves, has {len(whole)}", code="too-few-runs")
    low = min(float(curve.x[0]) for curve in whole)
    high = max(float(curve.x[-1]) for curve in whole)
    grid = np.geomspace(low, high, _POINTS * 4)
    table = np.full((len(curves), len(grid)), np.inf)
    for place, curve in enumerate(curves):
        if len(curve.x) < 2:
            continue
        inside = (grid >= curve.x[0]) & (grid <= curve.x[-1])
        table[place, inside] = np.interp(np.log(grid[inside]), np.log(curve.x), curve.y)
    who, lowest = table.argmin(axis=0), table.min(axis=0)
    # before a run has come to its end nothing shows that a longer one is not better: the first and last
    # stretch, of one run alone, is no envelope. Nor is one run better than another that it has no x in common
    # with, and between two such there may be no run at all
    known, places = np.isfinite(lowest), np.arange(len(grid) - 1)
    both = np.isfinite(table[who[1:], places]) | np.isfinite(table[who[:-1], places + 1])
    changes = np.flatnonzero((np.diff(who) != 0) & known[:-1] & known[1:] & both)
    if len(changes) < 2:
        raise UserError(
            "these curves do not cross: the lowest loss goes from one run to another "
            f"{counted(len(changes), 'time')} where both have one, and an envelope lies between two such "
            "times. Longer runs of the smaller sizes, or sizes between, make one",
            code="no-crossing",
        )
    kept = slice(int(changes[0]) + 1, int(changes[-1]) + 1)
    falling = known[kept] & (np.minimum.accumulate(lowest[kept]) >= lowest[kept])
    if falling.sum() < LEAST_POINTS:
        raise UserError(
            f"these curves cross too near each other: the envelope between has {falling.sum()} points"
        )
    return Envelope(grid[kept][falling], lowest[kept][falling], who[kept][falling])


def bootstrap_runs(
    curves: Sequence[Curve], law: PowerLaw, theta: Array, *, draws: int = 200, seed: int = 0
) -> Array:
    """(draws that have an envelope, 3) theta of as many runs drawn with repetition."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        drawn = [
            curves[place] for place in sorted(set(generator.integers(0, len(curves), len(curves)).tolist()))
        ]
        try:
            one = envelope(drawn)
        except UserError:
            continue
        found.append(law.fit(one.x, one.y, start=theta))
    return np.array(found)
