"""Windows over ranges and shards are those of a loop over each range."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.shards import Shards
from data_loading.splits import other_ranges
from data_loading.windows import Windows, windows_in


def oracle(tokens: np.ndarray, ranges: list[range], seq_len: int) -> list[list[int]]:
    found = []
    for part in ranges:
        start = part.start
        while start + seq_len + 1 <= part.stop:
            found.append(tokens[start : start + seq_len + 1].tolist())
            start += seq_len
    return found


@settings(max_examples=300)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    borders=st.lists(st.integers(0, 240), max_size=6),
    seq_len=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_are_those_of_a_loop(lengths: list[int], borders: list[int], seq_len: int, seed: int) -> None:
    total = sum(lengths)
    whole = np.arange(total, dtype="<u2") * 7
    cuts = np.cumsum([0, *lengths])
    several = Shards([whole[a:b] for a, b in itertools.pairwise(cuts)])
    inner = sorted({0, total, *(border % (total + 1) for border in borders)})
    ranges = [range(a, b) for a, b in itertools.pairwise(inner)][::2]
    expected = oracle(whole, ranges, seq_len)
    for tokens in (whole, several):
        windows = Windows(tokens, ranges, seq_len)
        assert len(windows) == len(expected) == sum(windows_in(len(part), seq_len) for part in ranges)
        order = np.random.default_rng(seed).integers(0, max(len(expected), 1), 2 * len(expected))
        found = windows.gather(order) if len(expected) else np.empty((0, seq_len + 1))
        assert found.tolist() == [expected[place] for place in order]


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(1, 100))
def test_what_is_not_held_out_is_trained_on(borders: list[int], n_tokens: int) -> None:
    inner = sorted({border % n_tokens for border in borders})
    val = [range(a, b) for a, b in zip(inner[::2], inner[1::2], strict=False)]
    train = other_ranges(n_tokens, val)
    assert sorted(t for part in [*train, *val] for t in part) == list(range(n_tokens))
    assert all(len(part) for part in train)
