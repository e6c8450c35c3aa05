"""A fit with its intervals, its residuals and its predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analysis.fits.points import Points
from analysis.fits.power import LineInLogs, PowerLaw, r_squared
from analysis.fits.uncertainty import (
    DRAWS,
    Interval,
    Law,
    Left,
    bootstrap,
    interval,
    is_identified,
    leave_one_out,
    profile_of_e,
)
from experiment_utils.errors import UserError

Array = np.ndarray[Any, np.dtype[np.float64]]
_STEEPEST = 10.0
"""An alpha beyond that is a step from the first size to all others, which are alike."""
FAR = 10.0
"""A prediction more than this many times beyond the data is a guess."""


@dataclass(frozen=True)
class Prediction:
    """The curve at x with its band. times: factor by which x is beyond the data; 1: within."""

    x: float
    loss: Interval
    times: float

    @property
    def is_far(self) -> bool:
        return self.times > FAR * (1 + 1e-9)


@dataclass(frozen=True)
class Fit:
    """values: of the formula, with intervals. e_range: where E may lie, by its profile (least squares) or its
    draws (Huber); identified: whether that says anything. drawn: theta of each draw. robust: the same law by
    Huber's loss of logs. is_profiled: e_range is that of the profile.
    """

    law: Law
    theta: Array
    values: dict[str, Interval]
    r2: Interval
    e_range: tuple[float, float]
    identified: bool
    fitted: Array
    left: list[Left]
    drawn: Array
    robust: dict[str, float] = field(default_factory=dict)
    is_profiled: bool = False

    @property
    def formula(self) -> str:
        """`2.603 + 293.8 x^-0.1344`, an E that the data do not identify is written as E."""
        shown = {name: f"{found.value:.4g}" for name, found in self.values.items() if found.value is not None}
        if self.law.fixed_e is None and not self.identified:
            shown["E"] = "E"
        if "beta" in shown:
            return f"{shown['E']} + {shown['A']} N^-{shown['alpha']} + {shown['B']} D^-{shown['beta']}"
        return f"{shown['E']} + {shown['A']} x^-{shown['alpha']}"

    def predict(self, x: Array, data: Array) -> Prediction:
        """x: (1,) or (1, 2). data: those that it was fitted to."""
        curve = [float(self.law.predict(theta, x)[0]) for theta in self.drawn]
        loss = interval(float(self.law.predict(self.theta, x)[0]), curve)
        times = float(np.max(np.maximum(x[0] / data.max(axis=0), data.min(axis=0) / x[0])))
        return Prediction(float(np.ravel(x)[0]), loss, max(1.0, times))

    def band(self, x: Array) -> tuple[Array, Array]:
        """95% of the curve at each x."""
        curves = np.array([self.law.predict(theta, x) for theta in self.drawn])
        low, high = np.quantile(curves, [0.025, 0.975], axis=0)
        return low, high


def fit_law(
    law: Law, x: Array, y: Array, names: Sequence[str], *, draws: int = DRAWS, drawn: Array | None = None
) -> Fit:
    """Fit any law. drawn: theta of draws made elsewhere."""
    theta = law.fit(x, y)
    drawn = bootstrap(law, theta, x, y, draws=draws) if drawn is None else drawn
    each = [law.values(one) for one in drawn]
    values = {name: interval(value, [one[name] for one in each]) for name, value in law.values(theta).items()}
    fitted = law.predict(theta, x)
    explained = [r_squared(y, law.predict(one, x)) for one in drawn]  # of what was measured
    e_range = (values["E"].low, values["E"].high)
    return Fit(
        law, theta, values, interval(r_squared(y, fitted), explained), e_range,
        law.fixed_e is None and is_identified(*e_range, y), fitted, leave_one_out(law, theta, x, y, names),
        drawn,
    )  # fmt: skip


def power_law(x: Array, y: Array, method: str, fixed_e: float | None) -> PowerLaw:
    """The law to fit to these points.

    Raises:
        UserError: a fixed E that is not below every loss.
    """
    check_fixed(fixed_e, y)
    squares = method == "least-squares"
    return (LineInLogs if squares and fixed_e is not None else PowerLaw).of(x, method, fixed_e)


def check_fixed(fixed_e: float | None, y: Array) -> None:
    """Whether a fixed E is below every loss.

    Raises:
        UserError: it is not.
    """
    if fixed_e is not None and not 0 <= fixed_e < float(y.min()):
        raise UserError(f"--fix E={fixed_e:g}: expected 0 or more, below the lowest loss, {y.min():.4f}")


def check_falls(alpha: float, points: Points) -> None:
    """Whether a law that falls describes these points at all.

    Raises:
        UserError: the best of this form rises.
    """
    if 0 < alpha < _STEEPEST:
        return
    ends = f"{points.y[0]:.4f} at {points.x[0]:.3g}, {points.y[-1]:.4f} at {points.x[-1]:.3g}"
    beyond = " beyond the smallest" if alpha > 0 else ""
    raise UserError(
        f"{points.y_name} does not fall with {points.x_name}{beyond} ({ends}): no law of this kind describes "
        f"these {len(points.x)} sizes. Is each at its best rate (python -m analysis best-lr)?"
    )


def fit_power(
    points: Points, *, method: str = "least-squares", fixed_e: float | None = None, draws: int = DRAWS
) -> Fit:
    """The power law of these points.

    Raises:
        UserError: a fixed E that is not below every loss, or losses that do not fall.
    """
    x, y = points.x, points.y
    law = power_law(x, y, method, fixed_e)
    check_falls(law.values(law.fit(x, y))["alpha"], points)
    found = fit_law(law, x, y, points.names, draws=draws)
    if fixed_e is not None or method != "least-squares":
        return found
    e_range = profile_of_e(law, found.theta, x, y, lambda e: replace(law, fixed_e=e))
    other = PowerLaw.of(x, "huber")
    robust = other.values(other.fit(x, y))
    return replace(
        found, e_range=e_range, identified=is_identified(*e_range, y), robust=robust, is_profiled=True
    )
