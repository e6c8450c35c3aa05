"""At equal compute, the best size: a parabola in log N for each budget, and how its lowest point moves.

Hoffmann et al. 2022, approach 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.fits.line import line_through
from analysis.fits.parabola import round_minimum, vertex
from analysis.fits.uncertainty import Interval
from analysis.reading.study import Run
from experiment_utils.errors import UserError

SAME_BUDGET = 0.15
"""Relative: runs that near in compute are of one budget."""
_REACH = 2


@dataclass(frozen=True)
class Budget:
    """flops: mean of its runs. best: (N, loss) of the lowest point; None: there is none inside, and why."""

    flops: float
    sizes: list[tuple[float, float, str]]
    best: tuple[float, float] | None
    why_not: str | None


@dataclass(frozen=True)
class IsoFlop:
    """exponent: a of N = k C^a; None of fewer than two budgets with a lowest point."""

    budgets: list[Budget]
    exponent: Interval | None
    factor: float | None

    def best_size(self, flops: float) -> float | None:
        """N by that law."""
        if self.exponent is None or self.exponent.value is None or self.factor is None:
            return None
        return self.factor * flops**self.exponent.value


def isoflop(runs: Sequence[Run], flops: str, size: str, y: str) -> IsoFlop:
    """flops, size, y: columns.

    Raises:
        UserError: no budget has three sizes.
    """
    found = [_budget(group, flops, size, y) for group in _groups(runs, flops)]
    if all(len(budget.sizes) < 3 for budget in found):
        most = max((len(budget.sizes) for budget in found), default=0)
        raise UserError(
            f"isoflop needs >= 3 sizes ({size}) of equal {flops} (within {SAME_BUDGET:.0%}); the most that "
            f"a budget has is {most}. Budgets: {', '.join(f'{budget.flops:.3g}' for budget in found[:8])}",
            code="too-few-sizes",
        )
    known = [(budget.flops, budget.best[0]) for budget in found if budget.best is not None]
    if len(known) < 2:
        return IsoFlop(found, None, None)
    line = line_through(np.log([c for c, _ in known]), np.log([n for _, n in known]))
    exponent = Interval(line.slope, line.slope - line.reach, line.slope + line.reach)
    return IsoFlop(found, exponent, math.exp(line.intercept))


def _groups(runs: Sequence[Run], flops: str) -> list[list[Run]]:
    groups: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: run.number(flops) or 0.0):
        if groups and (run.number(flops) or 0.0) <= (groups[-1][0].number(flops) or 0.0) * (1 + SAME_BUDGET):
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups


def _budget(group: Sequence[Run], flops: str, size: str, y: str) -> Budget:
    by_size: dict[float, list[Run]] = {}
    for run in group:
        by_size.setdefault(run.number(size) or 0.0, []).append(run)
    sizes = [
        (n, float(np.mean([run.number(y) for run in by_size[n]])), by_size[n][0].name)
        for n in sorted(by_size)
    ]
    compute = float(np.mean([run.number(flops) for run in group]))
    n, losses = np.log([one[0] for one in sizes]), np.array([one[1] for one in sizes])
    best, why = _lowest(n, losses)
    return Budget(compute, sizes, best, why)


def _lowest(n: Any, losses: Any) -> tuple[tuple[float, float] | None, str | None]:
    if len(n) < 3:
        return None, f"{len(n)} size{'s' * (len(n) != 1)} only"
    if int(np.argmin(losses)) in (0, len(n) - 1):
        which = "smallest" if int(np.argmin(losses)) == 0 else "largest"
        return None, f"the {which} size is the best: the lowest point lies outside"
    near = round_minimum(losses, _REACH)
    found = vertex(n[near], losses[near])
    if found is None or not n[near][0] <= found[0] <= n[near][-1]:
        return None, "its losses have no lowest point inside"
    return (math.exp(found[0]), found[1]), None
