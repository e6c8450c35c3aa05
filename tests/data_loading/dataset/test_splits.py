"""Splits of a set with several sources: disjoint, together the set, the same share of each source."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.dataset.splits import Share, Splits, hold_out, split_set
from experiment_utils.errors import UserError
from tests.golden_text import Golden
from tests.searched import examples

SHARES = st.floats(0.01, 0.4) | st.integers(1, 40)


def corpus(lengths: list[list[int]]) -> tuple[int, np.ndarray, list[tuple[int, int]]]:
    """Tokens, document starts and sources of sources with documents of these lengths."""
    flat = [length for source in lengths for length in source]
    starts = np.cumsum([0, *flat])[:-1].astype(np.uint64)
    return sum(flat), starts, [(sum(source), len(source)) for source in lengths]


def inside(splits: tuple[range, ...], part: range) -> int:
    return sum(max(0, min(r.stop, part.stop) - max(r.start, part.start)) for r in splits)


@settings(max_examples=examples(200))
@given(
    counts=st.lists(st.integers(1, 250), min_size=1, max_size=6),
    longest=st.integers(1, 9),
    val=SHARES,
    test=st.just(0) | SHARES,
    seed=st.integers(0, 99),
)
def test_are_disjoint_and_together_the_set(
    counts: list[int], longest: int, val: Share, test: Share, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    lengths = [generator.integers(1, longest + 1, count).tolist() for count in counts]
    n, starts, sources = corpus(lengths)
    try:
        splits = split_set(n, starts, val, test, sources)
    except UserError as error:
        assert error.code in ("too-few-tokens", "held-out-too-many")  # noqa: PT017
        return
    ranges = sorted([*splits.train, *splits.val, *splits.test], key=lambda part: part.start)
    assert ranges[0].start == 0
    assert all(one.stop == other.start for one, other in itertools.pairwise(ranges))
    assert ranges[-1].stop == n
    assert all(len(part) for part in ranges)
    assert bool(splits.test) == bool(test)
    assert splits.val == split_set(n, starts, val, 0, sources).val, "what is val depends on val alone"


def test_each_source_gives_its_share_in_whole_documents() -> None:
    n, starts, sources = corpus([[5] * 1000, [7] * 300, [3] * 2000])
    splits = split_set(n, starts, 0.1, 0.05, sources)
    borders = np.cumsum([0, *(tokens for tokens, _ in sources)])
    for a, b in itertools.pairwise(borders.tolist()):
        part = range(a, b)
        assert inside(splits.val, part) == pytest.approx(0.1 * len(part), abs=7)
        assert inside(splits.test, part) == pytest.approx(0.05 * len(part), abs=7)
        assert max(r.stop for r in splits.val if r.stop <= b) == b, "val is the last of each"
    documents = set(starts.tolist())
    assert {r.start for r in [*splits.val, *splits.test]} <= documents
    assert len(splits.val) == len(splits.test) == 3


def test_small_neighbours_count_as_one() -> None:
    """60 + 60 documents make one part, the last 30 go with what is before them."""
    n, starts, sources = corpus([[5] * 60, [5] * 60, [5] * 30])
    assert split_set(n, starts, 0.1, 0, sources).val == (range(n - n // 10, n),)
    n, starts, sources = corpus([[5] * 60, [5] * 60, [5] * 130])
    assert split_set(n, starts, 0.1, 0, sources).val == (range(540, 600), range(1185, 1250))


@pytest.mark.parametrize("none", [0, 0.0])
def test_share_of_zero_holds_nothing_out(none: Share) -> None:
    sources = [(tokens, 120) for tokens in (400, 800)]
    starts = np.arange(0, 1200, 5)
    assert split_set(1200, starts, none, 0, sources) == Splits((range(1200),), ())
    splits = split_set(1200, starts, none, 0.1, sources)
    assert splits.val == ()
    assert sum(map(len, splits.train)) + sum(map(len, splits.test)) == 1200


@pytest.mark.parametrize("total", [1, 17, 999])
def test_a_count_is_met_exactly_where_borders_may_fall_anywhere(total: int) -> None:
    sources = [(tokens, 1) for tokens in (400, 37, 800)]
    splits = split_set(1237, None, total, 0, sources)
    assert sum(map(len, splits.val)) == total
    kept, held_out = hold_out([range(400), range(400, 437), range(437, 1237)], None, total)
    assert sum(map(len, held_out)) == total
    assert sum(map(len, kept)) == 1237 - total


def test_growing_a_budget_or_adding_a_test_part_keeps_val() -> None:
    n, starts, sources = corpus([[5] * 1000, [7] * 300])
    assert split_set(n, starts, 0.1, 0.2, sources).val == split_set(n, starts, 0.1, 0, sources).val


def test_a_thousand_parts_at_most() -> None:
    n, starts, sources = corpus([[2] * 120] * 3000)
    assert len(split_set(n, starts, 0.1, 0, sources).val) <= 1000


@pytest.mark.parametrize(
    ("val", "test"),
    [(1000, 0), (900, 100),
     (0.5, 500)],
)  # fmt: skip
def test_more_than_there_is_cannot_be_held_out(val: Share, test: Share, golden: Golden) -> None:
    with golden.refused("held-out-too-many"):
        split_set(1000, None, val, test)


@pytest.mark.parametrize(
    ("val", "test"), [(2.0, 0), (1.0, 0), (-0.5, 0), (-1, 0), (float("nan"), 0), (0.1, 1.5)]
)
def test_invalid_share_is_refused(val: Share, test: Share, golden: Golden) -> None:
    """No 2 tokens: those are 2, without a point."""
    with golden.refused("share-invalid"):
        split_set(1000, None, val, test)


def test_one_source_is_one_part() -> None:
    assert split_set(1000, None, 0.1) == Splits((range(900),), (range(900, 1000),))
