"""The ratio estimate: right where everything was looked at, and as far off as it says elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from data_loading.pretokenizer.ratio import Estimate, half_width, ratio_estimate
from experiment_utils.student_t import critical


@pytest.mark.parametrize(
    ("degrees", "point"), [(1, 12.706), (10, 2.228), (30, 2.042), (31, 2.040), (95, 1.985), (1000, 1.962)]
)
def test_the_points_of_students_t(degrees: int, point: float) -> None:
    assert critical(0.025, degrees) == pytest.approx(point, abs=0.001)


def test_a_whole_that_was_looked_at_is_exact() -> None:
    assert ratio_estimate([100, 50], [30, 1], 150) == Estimate(31, 0.0, 1)


def test_one_sample_has_no_error() -> None:
    found = ratio_estimate([100], [30], 1000)
    assert found == Estimate(300, None, 0)
    assert half_width([found, ratio_estimate([100, 100], [30, 31], 1000)]) is None


def test_samples_that_agree_are_sure_of_it() -> None:
    found = ratio_estimate([100, 50, 10], [200, 100, 20], 10_000)
    assert (found.total, half_width([found])) == (20_000, 0.0)


def test_nothing_is_told_of_samples_without_text() -> None:
    assert ratio_estimate([0, 0], [0, 0], 1000) == Estimate(0.0, None, 0)


def test_known_figures() -> None:
    """Worked by hand: ratio 1.5, residuals 50, -50, 0 of samples of 100, one hundredth looked at."""
    found = ratio_estimate([100, 100, 100], [200, 100, 150], 30_000)
    assert found.total == 45_000
    assert found.variance == pytest.approx(0.99 * 2500 / (3 * 100**2) * 30_000**2)
    assert half_width([found]) == pytest.approx(critical(0.025, 2) * found.variance**0.5)


@pytest.mark.parametrize("spread", [0.02, 0.3])
@pytest.mark.parametrize("share", [0.01, 0.6])
def test_the_interval_holds_the_truth_as_often_as_it_says(spread: float, share: float) -> None:
    """Also of samples that are most of the whole, where an interval without that would be too wide."""
    draw = np.random.default_rng(0)
    inside, widths, errors = 0, 0.0, 0.0
    for _ in range(1000):
        count = int(40 / share)
        sizes = draw.uniform(10, 100, count)
        amounts = sizes * draw.lognormal(0, spread, count)
        chosen = draw.choice(count, 40, replace=False)
        found = ratio_estimate(sizes[chosen], amounts[chosen], sizes.sum())
        width = half_width([found])
        assert width is not None
        inside += abs(found.total - amounts.sum()) <= width
        widths += width**2
        errors += (found.total - amounts.sum()) ** 2
    assert 910 <= inside <= 980, "skewed amounts cost a few of the 950"
    expected = critical(0.025, 39) ** 2
    assert widths / errors == pytest.approx(expected, rel=0.2), "neither too wide nor too narrow"


def test_errors_of_several_kinds_add_as_squares() -> None:
    parts = [Estimate(10, 9.0, 200), Estimate(10, 16.0, 50), Estimate(5, 0.0, 1)]
    assert half_width(parts) == pytest.approx(critical(0.025, 50) * 5)
