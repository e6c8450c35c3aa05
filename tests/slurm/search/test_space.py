"""Candidates: from what is searched, the same for the same seed, none twice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.composing.overrides import Setting, Value, parse
from slurm.search.space import RANDOM, SOBOL, Interval, dimensions_of, drawn, every
from tests.golden_text import Golden


def setting(argument: str) -> Setting:
    found = parse(argument, lambda group: [])
    assert isinstance(found, Setting)
    return found


def told(**values: str) -> tuple[dict[str, object], list[str]]:
    settings = {key: setting(f"{key}={text}") for key, text in values.items()}
    found, problems = dimensions_of(settings)
    return dict(found), [str(problem) for problem in problems]


def test_what_is_searched(golden: Golden) -> None:
    found, problems = told(seed="0,1,2", a="tag(log,interval(1e-4,1e-1))", b="int(interval(2,8))", c="7")
    assert problems == []
    assert [value.value for value in found["seed"]] == [0, 1, 2]  # type: ignore[attr-defined]
    assert found["a"] == Interval(1e-4, 1e-1, is_log=True)
    assert found["b"] == Interval(2, 8, is_whole=True)
    assert "c" not in found
    _, problems = told(a="tag(log,interval(0,1))", b="interval(3,3)")
    assert len(problems) == 2
    golden.text("\n".join(problems))


@given(
    st.floats(1e-9, 1e6), st.floats(1.001, 1e6), st.booleans(), st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
)  # fmt: skip
def test_a_point_lies_inside_and_keeps_its_order(
    low: float, factor: float, is_log: bool, place: float, other: float
) -> None:
    interval = Interval(low, low * factor, is_log)
    first, second = interval.at(place), interval.at(other)
    assert low <= first.value <= low * factor
    assert float(first.text) == first.value
    assert (place <= other) <= (first.value <= second.value)


@given(st.integers(-50, 50), st.integers(1, 40), st.floats(0, 1, exclude_max=True))
def test_whole_numbers_have_as_much_room_each(low: int, more: int, place: float) -> None:
    interval = Interval(low, low + more, is_whole=True)
    found = interval.at(place).value
    assert isinstance(found, int)
    assert low <= found <= low + more
    assert {interval.at((number + 0.5) / (more + 1)).value for number in range(more + 1)} == {
        *range(low, low + more + 1)
    }


@pytest.mark.parametrize("how", [SOBOL, RANDOM])
def test_the_same_seed_draws_the_same_and_more_begins_with_them(how: str) -> None:
    space = {"a": Interval(1e-4, 1e-1, is_log=True), "b": (Value(1, "1"), Value(2, "2"), Value(3, "3"))}
    few, many = drawn(space, 5, how, 3), drawn(space, 40, how, 3)
    assert many[:5] == few
    assert drawn(space, 40, how, 4) != many
    assert len({(one["a"].text, one["b"].text) for one in many}) == 40
    assert {one["b"].value for one in many} == {1, 2, 3}


def test_lists_have_an_end() -> None:
    space = {"a": (Value(1, "1"), Value(2, "2")), "b": Interval(1, 3, is_whole=True)}
    for how in (SOBOL, RANDOM):
        found = drawn(space, 100, how, 0)
        assert len(found) == 6
    lists = {"a": (Value(1, "1"), Value(2, "2")), "b": (Value(5, "5"), Value(6, "6"))}
    assert [(one["a"].value, one["b"].value) for one in every(lists)] == [(1, 5), (1, 6), (2, 5), (2, 6)]


def test_sobol_spreads_evenly() -> None:
    """Each eighth of the interval has as many of the first 32 points as the others: random ones have not."""
    places = [
        math.log(one["a"].value / 1e-4) / math.log(1e3)
        for one in drawn({"a": Interval(1e-4, 1e-1, is_log=True)}, 32, SOBOL, 0)
    ]
    assert [sum(int(place * 8) == part for place in places) for part in range(8)] == [4] * 8
