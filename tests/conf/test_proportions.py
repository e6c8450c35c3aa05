"""Weights are exactly what was typed, or what is wrong with them is told with what was meant."""

from __future__ import annotations

import math
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
from tests.golden_text import Golden


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


def test_wrong_weights_and_milestones_are_refused(golden: Golden) -> None:
    texts = []
    for typed in ("3 1", "0.5 0.4", "0 1", "-1 2", "x 1", "1/0 1", "nan 1", "1e-9 0.999999999", ""):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            parse_weights(typed.split())
        texts.append(str(error.value))
    for typed in ("0.2+0.8", "0.2+0.8@", "@100M", "0.2+0.9@100M", "0.2+-0.8@1M", "a@1M", "1@x"):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            parse_milestone(typed)
        texts.append(str(error.value))
    golden.text("\n".join(texts))


@pytest.mark.parametrize("text", ["0.2+0.8@100M", " 0.2 + 0.8 @ 1e8 ", "0.2 0.8@100_000_000", "1/5+4/5@0.1B"])
def test_a_milestone_as_people_write_it(text: str) -> None:
    found = parse_milestone(text)
    assert found == Milestone(100_000_000, (Fraction(1, 5), Fraction(4, 5)))
    assert str(found) == "0.2+0.8@100000000"
    assert parse_milestone(str(found)) == found


def test_a_milestone_may_leave_a_source_out() -> None:
    assert parse_milestone("0+1@5").weights == (0, 1)
