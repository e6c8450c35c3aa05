"""Windows over ranges are those of a loop over each range."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.dataset.splits import other_ranges
from data_loading.dataset.windows import Windows, windows_in
from tests.searched import examples


def oracle(ranges: list[range], seq_len: int, stride: int, shift: int) -> list[int]:
    starts = []
    for part in ranges:
        start = part.start
        while start + seq_len + shift <= part.stop:
            starts.append(start)
            start += stride
    return starts


@settings(max_examples=examples(300))
@given(
    total=st.integers(0, 240),
    borders=st.lists(st.integers(0, 240), max_size=6),
    seq_len=st.integers(1, 40),
    stride=st.none() | st.integers(1, 50),
    shift=st.integers(1, 45),
)
def test_are_those_of_a_loop(
    total: int, borders: list[int], seq_len: int, stride: int | None, shift: int
) -> None:
    inner = sorted({0, total, *(border % (total + 1) for border in borders)})
    ranges = [range(a, b) for a, b in itertools.pairwise(inner)][::2]
    windows = Windows(ranges, seq_len, stride, shift)
    expected = oracle(ranges, seq_len, stride or seq_len, shift)
    assert len(windows) == len(expected)
    assert len(windows) == sum(windows_in(len(part), seq_len, stride, shift) for part in ranges)
    assert windows.starts(np.arange(len(windows))).tolist() == expected
    assert windows.starts(np.arange(len(windows))[::-1]).tolist() == expected[::-1]


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(1, 100))
def test_what_is_not_held_out_is_trained_on(borders: list[int], n_tokens: int) -> None:
    inner = sorted({border % n_tokens for border in borders})
    val = [range(a, b) for a, b in zip(inner[::2], inner[1::2], strict=False)]
    train = other_ranges(n_tokens, val)
    assert sorted(t for part in [*train, *val] for t in part) == list(range(n_tokens))
    assert all(len(part) for part in train)


@given(
    borders=st.lists(st.integers(0, 300), min_size=2, max_size=6, unique=True),
    seq_len=st.integers(1, 20),
    stride=st.none() | st.integers(1, 30),
    token=st.integers(-5, 320),
)
def test_windows_before_a_token(borders: list[int], seq_len: int, stride: int | None, token: int) -> None:
    ends = sorted(borders)[: len(borders) // 2 * 2]
    windows = Windows([range(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True)], seq_len, stride)
    starts = windows.starts(np.arange(len(windows)))
    assert windows.before(np.array([token])).tolist() == [int((starts < token).sum())]
