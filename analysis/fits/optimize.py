"""The lowest point of a cost that is curved as Huber's loss is, by SciPy's SLSQP.

L-BFGS-B needs ten times as long: it creeps along the valley in which E and the exponents make up for each
other. SLSQP makes its first step as long as the cost is steep, which may be far away: the cost is scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Cost = Callable[[Array], tuple[float, Array]]
"""Its value and its derivatives."""
Bounds = Sequence[tuple[float | None, float | None]]

FIRST_STEP = 0.1
"""Bounds of E in nats, of the exponents and of the logs of the falling terms."""
_ENOUGH = 1e-10
"""A step that gains less of the cost is the last."""


def lowest(cost: Cost, starts: Sequence[Array], bounds: Bounds) -> Array:
    """The lowest minimum that these starts lead to."""
    ends = [_from(cost, start, bounds) for start in starts]
    return min(ends, key=lambda end: end[1])[0]


def _from(cost: Cost, start: Array, bounds: Bounds) -> tuple[Array, float]:
    from scipy.optimize import minimize

    steepness = float(np.linalg.norm(cost(start)[1]))
    scale = min(1.0, FIRST_STEP / steepness) if steepness > 0 else 1.0

    def scaled(theta: Array) -> tuple[float, Array]:
        value, slopes = cost(theta)
        return value * scale, slopes * scale

    options = {"maxiter": 1000, "ftol": _ENOUGH * scale}
    done = minimize(scaled, start, jac=True, method="SLSQP", bounds=bounds, options=options)
    return done.x, float(done.fun) / scale if np.isfinite(done.fun) else np.inf
