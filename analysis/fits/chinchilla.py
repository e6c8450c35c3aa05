"""L(N, D) = E + A N^-alpha + B D^-beta, as Hoffmann et al. 2022 fit it (approach 3), and what follows of it.

theta is (E, log A', alpha, log B', beta), A' and B' at the geometric means of N and D.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.fits.optimize import lowest
from analysis.fits.power import huber_of_logs

Array = np.ndarray[Any, np.dtype[np.float64]]
MOST_CORRELATION = 0.98
"""Correlation of log N and log D above which their terms cannot be separated."""


@dataclass(frozen=True)
class Chinchilla:
    """centre: logs of the geometric means of N and D. method, fixed_e: as of `PowerLaw`."""

    centre: tuple[float, float]
    method: str = "huber"
    fixed_e: float | None = None

    @classmethod
    def of(cls, x: Array, method: str = "huber", fixed_e: float | None = None) -> Chinchilla:
        """Centred at these data. x: (points, 2), N and D."""
        n, d = np.log(x).mean(axis=0)
        return cls((float(n), float(d)), method, fixed_e)

    @property
    def free(self) -> int:
        return 5 if self.fixed_e is None else 4

    @property
    def is_multiplicative(self) -> bool:
        return self.method == "huber"

    def _parts(self, theta: Array, x: Array) -> tuple[Array, Array, Array, Array]:
        u, v = (np.log(x) - np.array(self.centre)).T
        of_n = np.exp(np.minimum(theta[1] - theta[2] * u, 300.0))
        return u, v, of_n, np.exp(np.minimum(theta[3] - theta[4] * v, 300.0))

    def predict(self, theta: Array, x: Array) -> Array:
        """Losses. x: (points, 2)."""
        _, _, of_n, of_d = self._parts(theta, x)
        return theta[0] + of_n + of_d

    def values(self, theta: Array) -> dict[str, float]:
        """The formula's numbers; `a`: the best N for a compute C grows as C^a, a = beta / (alpha + beta)."""
        scale = [
            math.exp(min(700.0, float(theta[1 + 2 * i] + theta[2 + 2 * i] * self.centre[i]))) for i in (0, 1)
        ]
        alpha, beta = float(theta[2]), float(theta[4])
        split = beta / (alpha + beta) if alpha + beta else math.nan
        return {"E": float(theta[0]), "A": scale[0], "alpha": alpha, "B": scale[1], "beta": beta, "a": split}

    def jacobian(self, theta: Array, x: Array) -> Array:
        """(points, parameters that are fitted)."""
        u, v, of_n, of_d = self._parts(theta, x)
        columns = [np.ones_like(u), of_n, -u * of_n, of_d, -v * of_d]
        return np.column_stack(columns if self.fixed_e is None else columns[1:])

    def cost(self, theta: Array, x: Array, y: Array) -> float:
        """Residuals as those of `PowerLaw`."""
        predicted = np.maximum(self.predict(theta, x), 1e-300)
        if self.method == "huber":
            return huber_of_logs(predicted, np.log(y))[0]
        return float(((predicted - y) ** 2).sum())

    def fit(self, x: Array, y: Array, start: Array | None = None) -> Array:
        """theta, the best from a grid of starts; from one alone where `start` is given."""
        return self._from(x, y, [start] if start is not None else self._starts(y))

    def _starts(self, y: Array) -> list[Array]:
        lowest, shares = float(y.min()), (0.3, 0.7, 0.95)
        grid = itertools.product([lowest * s for s in shares] if self.fixed_e is None else [self.fixed_e],
                                 (0.2, 0.5, 0.8), (0.15, 0.5), (0.15, 0.5))  # fmt: skip
        mean = float(y.mean())
        return [
            np.array([e, math.log(max(1e-3, (mean - e) * part)), alpha,
                      math.log(max(1e-3, (mean - e) * (1 - part))), beta])
            for e, part, alpha, beta in grid
        ]  # fmt: skip

    def _from(self, x: Array, y: Array, starts: Sequence[Array]) -> Array:
        fixed, log_y = self.fixed_e is not None, np.log(y)
        scale = float(np.std(y)) ** 2 * 1e-6

        def cost(free: Array) -> tuple[float, Array]:
            theta = np.array([self.fixed_e, *free]) if fixed else free
            predicted = np.maximum(self.predict(theta, x), 1e-300)
            if self.method == "huber":
                value, to_loss = huber_of_logs(predicted, log_y)
            else:
                off = predicted - y
                value, to_loss = float(off @ off) / scale, 2 * off / scale
            return value, to_loss @ self.jacobian(theta, x)

        bounds = [(0.0, None), (None, None), (0.0, None), (None, None), (0.0, None)][1 if fixed else 0 :]
        found = lowest(cost, [start[1:] if fixed else start for start in starts], bounds)
        return np.array([self.fixed_e, *found]) if fixed else found


def correlation(x: Array) -> float:
    """Correlation of log N and log D over the runs; 1 if one of them does not vary."""
    logs = np.log(x)
    if (np.ptp(logs, axis=0) < 1e-6).any():
        return 1.0
    return float(np.corrcoef(logs.T)[0, 1])
