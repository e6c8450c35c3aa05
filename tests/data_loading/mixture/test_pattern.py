"""No source is ever a whole sample ahead or behind, in any prefix, for any weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_loading.mixture.pattern import Pattern, _slots

weights = st.lists(st.integers(0, 60) | st.sampled_from([1, 997]), min_size=1, max_size=9).filter(any)


@given(weights)
@example([50, *[1] * 50])  # a divisor method gives the first source twice its share here
@example([7, 7, 7, 1])
@example([1])
@example([0, 3, 0, 2])
def test_every_prefix_has_floor_or_ceil_of_every_share(given_weights: list[int]) -> None:
    pattern, total = Pattern(given_weights), sum(given_weights)
    assert pattern.period == total // math.gcd(*given_weights)
    length = 2 * pattern.period + 3
    sources, ranks = pattern.at(np.arange(length))
    for i, weight in enumerate(given_weights):
        counts = np.cumsum(sources == i)
        off = counts * total - weight * np.arange(1, length + 1)
        assert np.abs(off).max() < total
        assert ranks[sources == i].tolist() == list(range(counts[-1])), "its samples come in order"


@given(weights, st.integers(0, 10**15))
def test_counts_and_places_are_those_of_the_positions(given_weights: list[int], start: int) -> None:
    pattern = Pattern(given_weights)
    sources, ranks = pattern.at(np.arange(start, start + 20))
    before = pattern.counts(start)
    for position, (source, rank) in enumerate(zip(sources.tolist(), ranks.tolist(), strict=True), start):
        assert rank == before[source]
        assert pattern.place(source, rank) == position
        before[source] += 1
    assert pattern.counts(start + 20).tolist() == before.tolist()


def test_a_tie_goes_to_the_source_named_first() -> None:
    assert Pattern([1, 1, 1]).at(np.arange(6))[0].tolist() == [0, 1, 2, 0, 1, 2]


def test_the_finest_weights_are_laid_out_once() -> None:
    Pattern([1, 333_333, 666_666])
    laid_out = _slots.cache_info().misses
    pattern = Pattern([1, 333_333, 666_666])
    pattern.at(np.arange(10**12, 10**12 + 64))
    assert _slots.cache_info().misses == laid_out


@pytest.mark.parametrize("common", [2, 1_000_000])
def test_a_common_divisor_changes_nothing(common: int) -> None:
    one, other = Pattern([7, 3]), Pattern([7 * common, 3 * common])
    assert one.period == other.period == 10
    assert np.array_equal(one.at(np.arange(30)), other.at(np.arange(30)))
