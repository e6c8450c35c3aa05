"""Counting packs as the plain algorithm does, which looks at every item and every bin."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.dataset.packing.best_fit import best_fit
from tests.searched import examples


def plainly(lengths: list[int], capacity: int) -> list[int]:
    """Room left in each bin: longest first, each item into the bin with the least room that it fits in."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [room for room in rooms if room >= length]
        if fitting:
            rooms[rooms.index(min(fitting))] -= length
        else:
            rooms.append(capacity - length)
    return sorted(rooms)


@settings(max_examples=examples(300))
@given(st.integers(1, 40).flatmap(lambda c: st.tuples(st.just(c), st.lists(st.integers(1, c), max_size=80))))
def test_the_bins_of_the_plain_algorithm(packed: tuple[int, list[int]]) -> None:
    capacity, lengths = packed
    into, bins = best_fit(np.array(lengths, np.int64), capacity)
    rooms = capacity - np.bincount(into, lengths, minlength=bins)
    assert sorted(rooms.tolist()) == plainly(lengths, capacity)


@settings(max_examples=examples(100))
@given(st.lists(st.integers(1, 90), min_size=1, max_size=60, unique=True))
def test_bins_are_numbered_by_the_items_that_began_them(lengths: list[int]) -> None:
    """So that rows, read in order, are the documents in about their order, and not the longest first."""
    into, bins = best_fit(np.array(lengths), 90)
    began = []
    for number in range(bins):
        items = np.flatnonzero(into == number).tolist()
        assert items, "no bin is empty"
        began.append(max(items, key=lambda item: lengths[item]))
    assert began == sorted(began)


def test_rows_read_in_order_are_not_sorted_by_length() -> None:
    lengths = np.random.default_rng(0).lognormal(5, 1, 50_000).astype(int).clip(1, 1024)
    into, bins = best_fit(lengths, 1024)
    for of_a_row in (np.maximum, np.add):  # the longest document, all tokens
        found = np.zeros(bins, int)
        of_a_row.at(found, into, lengths)
        assert abs(np.corrcoef(found, np.arange(bins))[0, 1]) < 0.02
    assert abs(np.corrcoef(np.bincount(into), np.arange(bins))[0, 1]) < 0.02


def test_many_items_cost_no_more_steps() -> None:
    """A million lengths in less than a second of this process, at hardly a token lost."""
    lengths = np.random.default_rng(0).lognormal(5.2, 1, 1_000_000).astype(int).clip(1, 1024)
    started = time.process_time()
    _, bins = best_fit(lengths, 1024)
    assert time.process_time() - started < 2
    assert lengths.sum() / (bins * 1024) > 0.999
