from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.fits.line import line_through


@pytest.mark.parametrize("points", [3, 4, 40])
def test_it_is_that_of_scipy_stats(points: int) -> None:
    generator = np.random.default_rng(points)
    x = np.sort(generator.normal(size=points)) + 30
    y = 3 - 0.7 * x + 0.1 * generator.normal(size=points)
    found, wanted = line_through(x, y), stats.linregress(x, y)
    reach = stats.t.ppf(0.975, points - 2) * wanted.stderr
    assert (found.slope, found.intercept, found.reach, found.r2) == pytest.approx(
        (wanted.slope, wanted.intercept, reach, wanted.rvalue**2), rel=1e-6
    )


def test_two_points_make_a_line_without_an_error() -> None:
    found = line_through(np.array([1.0, 2.0]), np.array([5.0, 7.0]))
    assert (found.slope, found.intercept) == pytest.approx((2, 3))
    assert found.reach == math.inf
    assert math.isnan(line_through(np.array([1.0, 2.0]), np.array([5.0, 5.0])).r2)
