"""Thinning keeps ends and peaks."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.report.data.thin import kept
from tests.searched import examples

values = st.none() | st.integers(-(10**6), 10**12) | st.floats(-1e12, 1e12)


@st.composite
def columns(draw: st.DrawFn) -> list[list[float | None]]:
    count = draw(st.integers(0, 200))
    return draw(st.lists(st.lists(values, min_size=count, max_size=count), min_size=1, max_size=4))


def known(column: list[float | None], places: list[int]) -> list[float]:
    return [value for i in places if (value := column[i]) is not None]


@given(columns(), st.integers(12, 60))
@settings(max_examples=examples(40))
def test_ends_and_extremes_of_every_column_are_kept(found: list[list[float | None]], most: int) -> None:
    count = len(found[0])
    places = kept(found, most)
    assert places == sorted(set(places))
    assert len(places) <= most
    assert {0, count - 1} <= {*places} or not count
    for column in found:
        everything = known(column, list(range(count)))
        if everything:
            assert min(known(column, places)) == min(everything)
            assert max(known(column, places)) == max(everything)
    if count <= most:
        assert places == list(range(count))


def test_second_highest_peak_of_many_samples_is_kept() -> None:
    column = [1000.0 + math.sin(i) for i in range(300_000)]
    column[254_321], column[7] = 5000.0, 9000.0
    places = kept([column], 2000)
    assert len(places) <= 2000
    assert {7, 254_321} <= {*places}
