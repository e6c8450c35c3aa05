"""Draws by index: even in every bit, the same whoever asks, unrelated between indices and between keys."""

from __future__ import annotations

import numpy as np
import pytest

from data_loading.synthetic.counter_hash import CounterHash, scaled
from tests.data_loading.synthetic.statistics_of import fits


@pytest.mark.parametrize("start", [0, -(10**6), 2**32 - 5000, 10**12, 2**48 - 10**6])
@pytest.mark.parametrize("stride", [1, 2, 64, 1024, 2**20])
def test_draws_are_even_wherever_and_however_the_indices_lie(start: int, stride: int) -> None:
    draws = CounterHash("x")(start + stride * np.arange(200_000))
    assert draws.max() < 2**32
    assert fits(np.bincount(draws >> np.uint64(24), minlength=256)), "high bits"
    assert fits(np.bincount(draws & np.uint64(255), minlength=256)), "low bits"


@pytest.mark.parametrize("lag", [1, 2, 3, 64, 128, 1024])
def test_draws_at_a_distance_know_nothing_of_each_other(lag: int) -> None:
    draws = (CounterHash("x")(np.arange(400_000 + lag)) >> np.uint64(27)).astype(np.int64)
    assert fits(np.bincount(draws[:-lag] * 32 + draws[lag:], minlength=1024))


@pytest.mark.parametrize("other", [1, 2, 3, 10**6])
def test_neighbouring_seeds_share_nothing(other: int) -> None:
    indices = np.arange(200_000)
    one, two = CounterHash("x", 0)(indices), CounterHash("x", other)(indices)
    pairs = (one >> np.uint64(27)) * np.uint64(32) + (two >> np.uint64(27))
    assert fits(np.bincount(pairs.astype(np.int64), minlength=1024))
    assert np.intersect1d(one, two).size < 30, "9 of 200,000 are the same by chance"
    for lag in (1, 2):  # nor is one the other, a few places on
        moved = (one[lag:] >> np.uint64(27)) * np.uint64(32) + (two[:-lag] >> np.uint64(27))
        assert fits(np.bincount(moved.astype(np.int64), minlength=1024))


def test_keys_near_each_other_do_not_permute_the_same_draws() -> None:
    one, two = CounterHash("x", 0), CounterHash("x", 1)
    one._key, two._key = np.uint64(5), np.uint64(6)
    assert np.intersect1d(one(np.arange(4096)), two(np.arange(4096))).size == 0


def test_a_bit_of_the_index_changes_each_bit_drawn_half_of_the_time() -> None:
    indices = np.arange(8000) * 977
    hashed = CounterHash("x")
    for bit in range(48):
        changed = (hashed(indices) ^ hashed(indices ^ (1 << bit))).astype("<u4").view(np.uint8)
        shares = np.unpackbits(changed.reshape(-1, 4), axis=1).mean(axis=0)
        assert np.abs(shares - 0.5).max() < 0.03, bit


def test_scaled_keeps_below_its_bound() -> None:
    edges = np.array([0, 1, 2**31, 2**32 - 1], np.uint64)
    assert scaled(edges, 50_257).tolist() == [0, 0, 25_128, 50_256]
    assert scaled(np.array([2**29 - 1], np.uint64), 7, bits=29).tolist() == [6]
