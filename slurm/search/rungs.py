"""Successive halving as numbers: runs and budget of each rung, and the runs that continue.

Jamieson and Talwalkar 2016 (arXiv:1502.07943). Of equal losses the candidate that was drawn first continues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rung:
    """One rung of a search."""

    number: int
    """From 1."""
    count: int
    """Runs of the rung."""
    share: float
    """Share of the whole budget that each of them has."""


def most_rungs(candidates: int, eta: int) -> int:
    """The largest number of rungs that leaves one candidate or more in the last."""
    rungs = 1
    while candidates // eta:
        candidates, rungs = candidates // eta, rungs + 1
    return rungs


def rungs_of(candidates: int, eta: int, count: int) -> list[Rung]:
    """Rungs from all candidates to the whole budget: each has the best 1/eta of the one before.

    Raises:
        ValueError: there are too few candidates.
    """
    if not 1 <= count <= most_rungs(candidates, eta):
        raise ValueError(f"{candidates} candidates make {most_rungs(candidates, eta)} rungs at most")
    return [
        Rung(place + 1, candidates // eta**place, 1.0 / eta ** (count - 1 - place)) for place in range(count)
    ]


def best_first(losses: Sequence[float | None]) -> list[int]:
    """Places of the finite losses, the lowest loss first."""
    known = [(loss, place) for place, loss in enumerate(losses) if loss is not None and math.isfinite(loss)]
    return [place for _, place in sorted(known)]


def kept(losses: Sequence[float | None], count: int) -> list[int]:
    """Places of the `count` lowest finite losses, in their order; fewer if fewer are finite."""
    return sorted(best_first(losses)[:count])
