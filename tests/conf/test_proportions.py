"""Weights are exactly what was typed, or what is wrong with them is told with what was meant."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.proportions import (
    Milestone,
    integer_weights,
    normalized,
    parse_milestone,
    parse_weights,
    shown,
)


@pytest.mark.parametrize(
    ("given_weights", "whole"),
    [
        (["0.7", "0.3"], (7, 3)),
        (["1/3", "1/3", "1/3"], (1, 1, 1)),
        ([0.1, 0.2, 0.7], (1, 2, 7)),
        (["0.333333", "0.333333", "0.333333"], (1, 1, 1)),
        (["1e-3", "0.999"], (1, 999)),
        (["0.000001", "0.999999"], (1, 999_999)),
        ([1], (1,)),
    ],
)
def test_weights_are_the_numbers_that_were_typed(given_weights: list[Any], whole: tuple[int, ...]) -> None:
    assert integer_weights(parse_weights(given_weights)) == whole


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=8))
def test_any_weights_become_millionths_at_most_and_the_offered_ones_are_taken(floats: list[float]) -> None:
    shares = normalized([Fraction(str(one)) for one in floats])
    assert sum(shares) == 1
    assert math.lcm(*(share.denominator for share in shares)) <= 1_000_000
    for share, one in zip(shares, floats, strict=True):
        assert abs(share - Fraction(one) / sum(map(Fraction, floats))) < Fraction(2, 1_000_000)
    typed = shown(shares).strip("[]").split(",")
    assert parse_weights(typed) == shares


@pytest.mark.parametrize(
    ("given_weights", "told"),
    [
        (["3", "1"], "the weights sum to 4, expected 1. As shares: [0.75,0.25]"),
        (["0.5", "0.4"], "the weights sum to 0.9, expected 1. As shares: [5/9,4/9]"),
        (["0", "1"], "weight 0: expected more than 0; leave the source out"),
        (["-1", "2"], "weight -1: expected more than 0"),
        (["x", "1"], "expected a number such as 0.7 or 1/3, got 'x'"),
        (["1/0", "1"], "expected a number such as 0.7 or 1/3, got '1/0'"),
        (["nan", "1"], "expected a number such as 0.7 or 1/3, got 'nan'"),
        (["1e-9", "0.999999999"], "a weight of 1e-09 is less than a millionth of the mixture"),
        ([], "expected a weight above 0"),
    ],
)
def test_what_is_wrong_is_told_with_what_was_meant(given_weights: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        parse_weights(given_weights)


@pytest.mark.parametrize("text", ["0.2+0.8@100M", " 0.2 + 0.8 @ 1e8 ", "0.2 0.8@100_000_000", "1/5+4/5@0.1B"])
def test_a_milestone_as_people_write_it(text: str) -> None:
    found = parse_milestone(text)
    assert found == Milestone(100_000_000, (Fraction(1, 5), Fraction(4, 5)))
    assert str(found) == "0.2+0.8@100000000"
    assert parse_milestone(str(found)) == found


@pytest.mark.parametrize(
    "text", ["0.2+0.8", "0.2+0.8@", "@100M", "0.2+0.9@100M", "0.2+-0.8@1M", "a@1M", "1@x"]
)
def test_a_milestone_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_milestone(text)


def test_a_milestone_may_leave_a_source_out() -> None:
    assert parse_milestone("0+1@5").weights == (0, 1)
