"""L = E + A x^-alpha: least squares of the loss, or Huber's loss of its logarithm; E free or fixed.

theta is (E, log of the falling part at x = x0, alpha) with x0 the geometric mean of the data: A itself, the
falling part at x = 1, lies many decades outside of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.fits.line import line_through
from analysis.fits.optimize import lowest

HUBER_DELTA = 1e-3
"""In log loss, as in Hoffmann et al. 2022 (Chinchilla), appendix D.2."""

Array = np.ndarray[Any, np.dtype[np.float64]]
_EVALUATIONS = 400


@dataclass(frozen=True)
class PowerLaw:
    """log_x0: as above. method: `least-squares` or `huber`. fixed_e: E, where it is not fitted."""

    log_x0: float
    method: str = "least-squares"
    fixed_e: float | None = None

    @classmethod
    def of(cls, x: Array, method: str = "least-squares", fixed_e: float | None = None) -> PowerLaw:
        """Centred at these data."""
        return cls(float(np.log(x).mean()), method, fixed_e)

    @property
    def free(self) -> int:
        """Number of fitted parameters."""
        return 2 if self.fixed_e is not None else 3

    @property
    def is_multiplicative(self) -> bool:
        """Whether its residuals are those of the log of the loss."""
        return self.method == "huber"

    def predict(self, theta: Array, x: Array) -> Array:
        """Losses, of the shape of x."""
        return theta[0] + _exp(theta[1] - theta[2] * (np.log(x) - self.log_x0))

    def values(self, theta: Array) -> dict[str, float]:
        """E, A and alpha of the formula."""
        exponent = float(theta[1] + theta[2] * self.log_x0)
        scale = math.exp(exponent) if exponent < 700 else math.inf
        return {"E": float(theta[0]), "A": scale, "alpha": float(theta[2])}

    def cost(self, theta: Array, x: Array, y: Array) -> float:
        """The objective of the fit: the sum of squares, or of Huber's losses over delta^2."""
        if self.method == "huber":
            return huber_of_logs(np.maximum(self.predict(theta, x), 1e-300), np.log(y))[0]
        return float(((self.predict(theta, x) - y) ** 2).sum())

    def fit(self, x: Array, y: Array, start: Array | None = None) -> Array:
        """theta, the best from many starts; from one alone where `start` is given. E is never below 0."""
        starts = [start] if start is not None else list(self._starts(x, y))
        if self.method == "huber":
            return self._huber_from(x, y, starts)
        found = [self._from(x, y, np.asarray(one, dtype=np.float64)) for one in starts]
        return min(found, key=lambda theta: self.cost(theta, x, y))

    def _starts(self, x: Array, y: Array) -> Iterable[Array]:
        """For shares of the lowest loss as E, the line in logs that goes with it, and some slopes besides."""
        u = np.log(x) - self.log_x0
        lowest = float(y.min())
        for e in (
            [self.fixed_e] if self.fixed_e is not None else [lowest * s for s in (0, 0.3, 0.6, 0.85, 0.95)]
        ):
            above = np.log(np.maximum(y - e, 1e-3 * lowest))
            slope, level = np.polyfit(u, above, 1)
            yield np.array([e, level, -slope])
            for alpha in (0.05, 0.3, 1.0):
                yield np.array([e, float(above.mean()), alpha])

    def _from(self, x: Array, y: Array, start: Array) -> Array:
        theta = self._squares_from(x, y, start, self.fixed_e)
        if self.fixed_e is None and theta[0] < 0:
            theta = self._squares_from(x, y, theta, 0.0)
        return theta

    def _squares_from(self, x: Array, y: Array, start: Array, fixed_e: float | None) -> Array:
        from scipy.optimize import leastsq  # least_squares takes ten times as long around the same MINPACK

        u = np.log(x) - self.log_x0
        fixed = fixed_e is not None

        def whole(free: Array) -> Array:
            return np.array([fixed_e, *free]) if fixed else free

        def residuals(free: Array) -> Array:
            theta = whole(free)
            return theta[0] + _exp(theta[1] - theta[2] * u) - y

        def derivatives(free: Array) -> Array:
            theta = whole(free)
            falling = _exp(theta[1] - theta[2] * u)
            columns = [np.ones_like(u), falling, -u * falling]
            return np.column_stack(columns[1:] if fixed else columns)

        begin = start[1:] if fixed else start
        # in full: it prints to stderr about each search that ends late
        with np.errstate(over="ignore", invalid="ignore"):  # for a covariance that is not used
            found, *_ = leastsq(residuals, begin, Dfun=derivatives, maxfev=_EVALUATIONS, full_output=True)
        return whole(found)

    def _huber_from(self, x: Array, y: Array, starts: Sequence[Array]) -> Array:
        """The gradient of a sum: with a mean the search would end far from the minimum."""
        u, log_y = np.log(x) - self.log_x0, np.log(y)
        fixed = self.fixed_e is not None

        def cost(free: Array) -> tuple[float, Array]:
            e = self.fixed_e if self.fixed_e is not None else free[0]
            level, alpha = free[-2:]
            falling = _exp(level - alpha * u)
            predicted = np.maximum(e + falling, 1e-300)
            value, to_loss = huber_of_logs(predicted, log_y)
            of_level = to_loss * falling
            slopes = [to_loss.sum(), of_level.sum(), -(u @ of_level)]
            return value, np.array(slopes[1:] if fixed else slopes)

        bounds = [(None, None)] * 2 if fixed else [(0, None), (None, None), (None, None)]
        begins = [np.asarray(start, dtype=np.float64)[1:] if fixed else start for start in starts]
        found = lowest(cost, begins, bounds)
        return np.array([self.fixed_e, *found]) if fixed else found


@dataclass(frozen=True)
class LineInLogs(PowerLaw):
    """The law with E fixed as people draw it: a straight line through log(L - E) over log x."""

    def fit(self, x: Array, y: Array, start: Array | None = None) -> Array:
        """theta; of no draw does it need a start."""
        assert self.fixed_e is not None
        above = np.maximum(y - self.fixed_e, 1e-12)
        line = line_through(np.log(x) - self.log_x0, np.log(above))
        return np.array([self.fixed_e, line.intercept, -line.slope])


def huber_of_logs(predicted: Array, log_y: Array) -> tuple[float, Array]:
    """(the sum over delta^2, its derivatives by what is predicted)."""
    off = (np.log(predicted) - log_y) / HUBER_DELTA
    near = np.clip(off, -1, 1)
    return float(near @ (2 * off - near)), 2 * near / HUBER_DELTA / predicted


def r_squared(y: Array, predicted: Array) -> float:
    """R^2 of the loss itself, whatever the objective was."""
    total = float(((y - y.mean()) ** 2).sum())
    return 1 - float(((y - predicted) ** 2).sum()) / total if total > 0 else math.nan


def _exp(exponent: Array) -> Array:
    """Without overflow, where a step of the search goes far."""
    return np.exp(np.minimum(exponent, 300.0))
