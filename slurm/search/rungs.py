"""Successive halving as numbers: how many run for how long, and which of them go on.

Jamieson and Talwalkar 2016 (arXiv:1502.07943); of a tie the candidate that was drawn first goes on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rung:
    """number: from 1. count: runs. share: of the whole budget, that each of them has."""

    number: int
    count: int
    share: float


def most_rungs(candidates: int, eta: int) -> int:
    """As many as leave one candidate at the last of them, or more."""
    rungs = 1
    while candidates // eta:
        candidates, rungs = candidates // eta, rungs + 1
    return rungs


def rungs_of(candidates: int, eta: int, count: int) -> list[Rung]:
    """The first has all candidates, each further one the best 1/eta, the last one the whole budget.

    Raises:
        ValueError: there are fewer candidates than so many rungs need.
    """
    if not 1 <= count <= most_rungs(candidates, eta):
        raise ValueError(f"{candidates} candidates make {most_rungs(candidates, eta)} rungs at most")
    return [
        Rung(place + 1, candidates // eta**place, 1.0 / eta ** (count - 1 - place)) for place in range(count)
    ]


def best_first(losses: Sequence[float | None]) -> list[int]:
    """The places of all that have a result, best first; without those that have none that is finite."""
    known = [(loss, place) for place, loss in enumerate(losses) if loss is not None and math.isfinite(loss)]
    return [place for _, place in sorted(known)]


def kept(losses: Sequence[float | None], count: int) -> list[int]:
    """The places of those that go on to a rung of so many, in their order; fewer where fewer have one."""
    return sorted(best_first(losses)[:count])
