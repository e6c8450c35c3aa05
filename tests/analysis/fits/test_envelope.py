"""The lowest loss at each compute is told where several runs are there to be compared, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.fits.envelope import Curve, envelope
from experiment_utils.errors import UserError
from tests.golden_text import Golden


def size(number: int, begin: float, end: float, points: int = 40) -> Curve:
    """Of a model whose floor lies the lower, and whose first steps are the dearer, the larger it is."""
    x = np.geomspace(begin, end, points)
    return Curve(f"{number}", x, 3.0 - 0.2 * number + 8.0**number / x)


def test_runs_take_over_from_each_other_where_they_cross() -> None:
    curves = [size(number, 1.0, 1e6) for number in range(4)]
    found = envelope(curves)
    assert list(dict.fromkeys(found.who.tolist())) == [1, 2], "not the first and the last, which are alone"
    for x, y in zip(found.x, found.y, strict=True):
        assert y == pytest.approx(min(3.0 - 0.2 * n + 8.0**n / x for n in range(4)), rel=0.01)


def test_a_gap_between_two_groups_of_runs_has_no_loss() -> None:
    """Large runs whose first evaluation lies behind the end of the small ones."""
    near, far = [size(n, 1.0, 1e4) for n in range(4)], [size(n, 1e6, 1e12) for n in range(5, 9)]
    found = envelope([*near, *far])
    assert np.isfinite(found.y).all()
    assert not ((found.x > 1.1e4) & (found.x < 0.9e6)).any()


def test_curves_that_have_no_x_in_common_are_no_envelope(golden: Golden) -> None:
    apart = [size(number, 10.0**number, 5 * 10.0**number) for number in range(6)]
    with golden.refused("no-crossing"):
        envelope(apart)


def test_one_crossing_is_none(golden: Golden) -> None:
    with golden.refused("no-crossing"):
        envelope([size(0, 1.0, 1e6), size(1, 1.0, 1e6)])


@given(
    spans=st.lists(
        st.tuples(st.floats(1, 1e6), st.floats(1.5, 1e6), st.integers(2, 9)), min_size=2, max_size=7
    )
)
def test_whatever_the_curves_it_is_numbers_or_no_envelope(spans: list[tuple[float, float, int]]) -> None:
    curves = [size(at, begin, begin * ratio, points) for at, (begin, ratio, points) in enumerate(spans)]
    try:
        found = envelope(curves)
    except UserError:
        return
    assert np.isfinite(found.y).all()
    assert (np.diff(found.y) <= 0).all()
    for place, x in zip(found.who, found.x, strict=True):
        assert curves[place].x[0] <= x * (1 + 1e-9)
        assert x <= curves[place].x[-1] * (1 + 1e-9)
