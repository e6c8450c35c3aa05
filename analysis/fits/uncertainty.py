"""Trust in a fit: intervals, whether the data identify E, the influence of one run.

Bootstrap: the sizes of a study are chosen, not drawn, so its losses are drawn again around the curve, each
with normal noise of its own size: how far it is from the fit without it (for a linear law the residual over
1 - leverage, HC3), and in quadrature the root mean square of all, since one point can be near by chance. Both
are widened by t / z for the few degrees of freedom. An outlier counts among all as 8 times the median:
one bad run makes little but its own point uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
DRAWS = 1000
LEVEL = 0.95
_OUTLIER = 8.0
"""Times the median."""
_AS_GOOD_AS_ZERO = 0.01
"""Share of the lowest loss below which E counts as 0."""
_WIDE = 0.5
"""Share of the lowest loss: a wider interval of E identifies nothing."""


class Law(Protocol):
    """Methods that a law has; x is (points,) or (points, 2)."""

    @property
    def fixed_e(self) -> float | None: ...
    @property
    def free(self) -> int: ...
    @property
    def is_multiplicative(self) -> bool: ...
    def predict(self, theta: Array, x: Array) -> Array: ...
    def values(self, theta: Array) -> dict[str, float]: ...
    def cost(self, theta: Array, x: Array, y: Array) -> float: ...
    def fit(self, x: Array, y: Array, start: Array | None = None) -> Array: ...


@dataclass(frozen=True)
class Interval:
    """A value and its 95% interval."""

    value: float | None
    low: float
    high: float

    def to_json(self) -> dict[str, float | None]:
        return {
            name: None if number is None or not math.isfinite(number) else number
            for name, number in (("value", self.value), ("low", self.low), ("high", self.high))
        }


@dataclass(frozen=True)
class Left:
    """The fit without one point. error: predicted by the others minus its loss."""

    name: str
    values: dict[str, float]
    error: float


def bootstrap(law: Law, theta: Array, x: Array, y: Array, *, draws: int = DRAWS, seed: int = 0) -> Array:
    """(draws, parameters) theta of losses drawn again around the curve.

    With as many points as parameters there are no residuals: every draw is theta itself.
    """
    fitted = law.predict(theta, x)
    sizes = _sizes_of_noise(law, theta, x, y)
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        moved = sizes * generator.normal(size=len(y))
        drawn = fitted * np.exp(moved) if law.is_multiplicative else fitted + moved
        found.append(law.fit(x, np.maximum(drawn, 1e-9), start=theta))
    return np.array(found)


def _sizes_of_noise(law: Law, theta: Array, x: Array, y: Array) -> Array:
    """(points,) standard deviations to draw with, of losses or, for a multiplicative law, of their logs."""
    from scipy.special import ndtri, stdtrit

    freedom = len(y) - law.free
    if freedom < 1:
        return np.zeros_like(y)
    predicted = np.maximum([_without(law, theta, x, y, place)[1] for place in range(len(y))], 1e-300)
    seen, predicted = (np.log(y), np.log(predicted)) if law.is_multiplicative else (y, predicted)
    own = np.minimum(np.abs(seen - predicted), np.ptp(seen))  # three points can predict anything of a fourth
    of_all = math.sqrt(float((np.minimum(own, _OUTLIER * float(np.median(own))) ** 2).mean()))
    tail = (1 + LEVEL) / 2
    return stdtrit(freedom, tail) / ndtri(tail) * np.hypot(own, of_all)


def _without(law: Law, theta: Array, x: Array, y: Array, place: int) -> tuple[Array, float]:
    """(theta of the fit without one point, the loss that it predicts there)."""
    others = np.arange(len(y)) != place
    found = law.fit(x[others], y[others], start=theta)
    return found, float(law.predict(found, x[place : place + 1])[0])


def interval(value: float, drawn: Sequence[float] | Array) -> Interval:
    """The middle 95% of the draws, the value within."""
    known = np.asarray(drawn)
    known = known[~np.isnan(known)]
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="nearest")
    return Interval(value, float(min(low, value)), float(max(high, value)))


def profile_of_e(
    law: Law, theta: Array, x: Array, y: Array, fixed: Callable[[float], Law]
) -> tuple[float, float]:
    """The interval of E: for each E within, the best fit with it is not significantly worse (F, 95%).

    fixed: the same law at a fixed E. Below 0 it is never looked for.
    """
    from scipy.optimize import brentq
    from scipy.special import fdtri

    best, freedom = law.cost(theta, x, y), len(y) - law.free
    if freedom < 1:
        return 0.0, float(y.min())
    most = best * (1 + fdtri(1, freedom, LEVEL) / freedom) + 1e-15

    def excess(e: float) -> float:
        at_e = fixed(e)
        return at_e.cost(at_e.fit(x, y), x, y) - most

    e, top = float(theta[0]), float(y.min())
    low = 0.0 if e <= 0 or excess(0.0) <= 0 else float(brentq(excess, 0.0, e, xtol=1e-5))
    high = top if excess(top) <= 0 or e >= top else float(brentq(excess, e, top, xtol=1e-5))
    return low, high


def is_identified(low: float, high: float, y: Array) -> bool:
    """Whether such an interval of E says anything: 0 is outside, and it is narrow for such a loss."""
    lowest = float(y.min())
    return low > _AS_GOOD_AS_ZERO * lowest and high - low <= _WIDE * lowest


def leave_one_out(law: Law, theta: Array, x: Array, y: Array, names: Sequence[str]) -> list[Left]:
    """The fit without each point in turn; none where too few would be left."""
    if len(y) - 1 < law.free:
        return []
    found = []
    for place, name in enumerate(names):
        without, predicted = _without(law, theta, x, y, place)
        found.append(Left(name, law.values(without), float(y[place]) - predicted))
    return found
