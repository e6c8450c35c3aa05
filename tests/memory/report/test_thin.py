"""Down-sampling keeps what a plot is looked at for: ends and peaks."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.report.thin import kept
from tests.searched import examples

values = st.none() | st.integers(-(10**6), 10**12) | st.floats(-1e12, 1e12)


@st.composite
def columns(draw: st.DrawFn) -> list[list[float | None]]:
    count = draw(st.integers(1, 200))
    return draw(st.lists(st.lists(values, min_size=count, max_size=count), min_size=1, max_size=4))


def known(column: list[float | None], places: list[int]) -> list[float]:
    return [value for i in places if (value := column[i]) is not None]


@given(columns(), st.integers(12, 60))
@settings(max_examples=examples(40))
def test_ends_and_extremes_of_every_column_are_kept(found: list[list[float | None]], most: int) -> None:
    count = len(found[0])
    places = kept(found, most)
    assert places == sorted(set(places))
    assert len(places) <= max(most, 12)
    assert places[0] == 0
    assert places[-1] == count - 1
    for column in found:
        everything = known(column, list(range(count)))
        if everything:
            assert min(known(column, places)) == min(everything)
            assert max(known(column, places)) == max(everything)
    if count <= most:
        assert places == list(range(count))


@given(st.lists(st.integers(0, 10**9), min_size=50, max_size=200), st.integers(20, 45))
@settings(max_examples=examples(40))
def test_every_stretch_of_the_first_column_keeps_its_peak(column: list[int], most: int) -> None:
    places = kept([column], most)
    stretches = (most - 4) // 2
    for number in range(stretches):
        begin, end = number * len(column) // stretches, (number + 1) * len(column) // stretches
        if begin < end and len(column) > most:
            highest = max(column[begin:end])
            # the last stretches may be shorter than these by the points that were kept anyway
            near = [column[i] for i in places if begin - end + begin <= i < end + end - begin]
            assert max(near) >= highest


def test_one_sample_of_very_many_is_not_lost() -> None:
    column = [1000.0 + math.sin(i) for i in range(300_000)]
    column[254_321] = 5000.0
    places = kept([column], 2000)
    assert len(places) <= 2000
    assert 254_321 in places


def test_nothing() -> None:
    assert kept([], 10) == []
    assert kept([[]], 10) == []
    assert kept([[None] * 100], 10)[0] == 0
