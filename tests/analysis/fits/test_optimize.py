from __future__ import annotations

import itertools

import numpy as np
import pytest

from analysis.fits import optimize
from analysis.fits.chinchilla import Chinchilla
from analysis.fits.optimize import lowest
from analysis.fits.power import PowerLaw

Array = np.ndarray
BOUNDS = [(0.0, None), (None, None)]


def valley(theta: Array) -> tuple[float, Array]:
    """Rosenbrock's, steep: its lowest point, at (1, 1), lies in a bent valley."""
    a, b = theta
    return (
        float(1e4 * (b - a * a) ** 2 + (1 - a) ** 2),
        np.array([-4e4 * a * (b - a * a) - 2 * (1 - a), 2e4 * (b - a * a)]),
    )


@pytest.mark.parametrize("start", [(0.1, 0.0), (3.0, -2.0), (0.9, 0.8), (20.0, 500.0)])
def test_the_lowest_point_of_a_valley(start: tuple[float, float]) -> None:
    assert lowest(valley, [np.array(start)], BOUNDS) == pytest.approx([1, 1], abs=1e-3)


def test_a_bound_is_kept() -> None:
    def beyond(theta: Array) -> tuple[float, Array]:
        return float(((theta + 1) ** 2).sum()), 2 * (theta + 1)

    assert lowest(beyond, [np.array([2.0, 2.0])], BOUNDS) == pytest.approx([0, -1], abs=1e-6)


def test_starts_where_the_cost_is_steep_come_to_the_same_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.array(list(itertools.product(np.geomspace(1e6, 3e8, 6), (2e7, 3e8, 4e9))))
    y = 1.7 + 400 * x[:, 0] ** -0.34 + 400 * x[:, 1] ** -0.28
    y *= np.exp(0.003 * np.random.default_rng(2).normal(size=len(y)))
    law = Chinchilla.of(x)
    starts = law._starts(y)[::3]
    best = law.cost(law.fit(x, y), x, y)
    for start in starts:
        assert law.cost(law.fit(x, y, start=start), x, y) <= 1.01 * best
    monkeypatch.setattr(optimize, "FIRST_STEP", np.inf)
    alone = [law.cost(law.fit(x, y, start=start), x, y) for start in starts]
    assert sum(not cost <= 1.01 * best for cost in alone) > len(starts) / 3


@pytest.mark.parametrize("x", [np.geomspace(7e14, 2e17, 11), np.geomspace(1e15, 4e15, 6)])
def test_a_draw_that_starts_at_the_fit_ends_where_many_starts_do(x: Array) -> None:
    """Also where the data hold no E: its valley is long and flat."""
    generator = np.random.default_rng(3)
    law, y = PowerLaw.of(x, "huber"), 2.6 + 290 * x**-0.134
    theta = law.fit(x, y * np.exp(0.004 * generator.normal(size=len(x))))
    for _ in range(2):
        drawn = y * np.exp(0.004 * generator.normal(size=len(x)))
        least = law.cost(law.fit(x, drawn), x, drawn)
        assert law.cost(law.fit(x, drawn, start=theta), x, drawn) <= least * 1.001 + 1e-6
