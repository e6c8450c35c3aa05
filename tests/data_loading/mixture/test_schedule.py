"""What becomes of sources that run dry, and of weights that change; every length is known beforehand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_loading.mixture.schedule import WHEN_DRY, Schedule, Stage
from tests.searched import examples


@st.composite
def schedules(draw: st.DrawFn, when_dry: str | None = None) -> Schedule:
    """Of one to five sources and up to three stages; a source has weight above 0 in one of them at least."""
    n = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(1, 40), min_size=n, max_size=n))
    starts = [0, *sorted(draw(st.sets(st.integers(1, 80), max_size=2)))]
    weight = st.integers(0 if len(starts) > 1 else 1, 12)
    rows = draw(
        st.lists(
            st.lists(weight, min_size=n, max_size=n).filter(any), min_size=len(starts), max_size=len(starts)
        ).filter(lambda rows: all(map(any, zip(*rows, strict=True))))
    )
    stages = [Stage(start, tuple(row)) for start, row in zip(starts, rows, strict=True)]
    made = Schedule(sizes, stages, when_dry or draw(st.sampled_from(WHEN_DRY)))
    made.stages = stages  # type: ignore[attr-defined]
    return made


def read(schedule: Schedule, length: int | None = None) -> list[tuple[int, int]]:
    sources, samples = schedule.at(np.arange(schedule.length if length is None else length))
    return list(zip(sources.tolist(), samples.tolist(), strict=True))


def stage_at(schedule: Any, position: int) -> Stage:
    return [stage for stage in schedule.stages if stage.start <= position][-1]


@settings(max_examples=examples(50))
@given(schedules(), st.integers(0, 3))
def test_samples_of_each_source_come_one_after_another(schedule: Schedule, epochs: int) -> None:
    length = schedule.length * (epochs + 1)
    found = read(schedule, length)
    for source in range(len(schedule.sizes)):
        assert [k for s, k in found if s == source] == list(range(int(schedule.counts(length)[source])))


@settings(max_examples=examples(50))
@given(schedules(), st.data())
def test_positions_read_alone_are_those_of_a_range(schedule: Schedule, data: st.DataObject) -> None:
    whole = read(schedule, 3 * schedule.length)
    some = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=12))
    assert list(zip(*map(list, schedule.at(np.array(some, np.int64))), strict=True)) == [
        whole[i] for i in some
    ]
    cut = data.draw(st.integers(0, len(whole)))
    counted = np.bincount([s for s, _ in whole[:cut]], minlength=len(schedule.sizes))
    assert schedule.counts(cut).tolist() == counted.tolist()


@settings(max_examples=examples(50))
@given(schedules("repeat"))
def test_repeat_keeps_the_weights_of_each_stage_for_ever(schedule: Any) -> None:
    found = read(schedule, schedule.length + 50)
    counts, shares = np.zeros(len(schedule.sizes)), [Fraction(0)] * len(schedule.sizes)
    stage = None
    for position, (source, _) in enumerate(found):
        if stage_at(schedule, position) is not stage:
            stage = stage_at(schedule, position)
            counts[:], shares = 0, [Fraction(0)] * len(schedule.sizes)
        counts[source] += 1
        shares = [s + Fraction(w, sum(stage.weights)) for s, w in zip(shares, stage.weights, strict=True)]
        assert all(abs(c - s) < 1 for c, s in zip(counts, shares, strict=True))


@settings(max_examples=examples(50))
@given(schedules("repeat"))
def test_repeat_has_read_all_of_each_source_that_is_still_read(schedule: Any) -> None:
    last = schedule.stages[-1]
    assert schedule.length >= max(1, last.start)
    for source, weight in enumerate(last.weights):
        if weight:
            assert schedule.totals[source] >= schedule.sizes[source]
    if schedule.length > max(1, last.start):
        before = schedule.counts(schedule.length - 1)
        assert any(before[i] < schedule.sizes[i] for i, weight in enumerate(last.weights) if weight)


@settings(max_examples=examples(50))
@given(schedules("stop"))
def test_stop_ends_just_before_a_sample_would_come_twice(schedule: Any) -> None:
    assert (schedule.totals <= schedule.sizes).all()
    endless = Schedule(schedule.sizes.tolist(), schedule.stages, "repeat")
    assert read(endless, schedule.length) == read(schedule)
    source, sample = read(endless, schedule.length + 1)[-1]
    assert sample == schedule.sizes[source]
    assert schedule.ended_by == source


@settings(max_examples=examples(50))
@given(schedules("rebalance"))
def test_rebalance_reads_every_sample_of_every_source_once(schedule: Any) -> None:
    """But for a source without weight after the last milestone, which is not read on."""
    found = read(schedule)
    assert len(set(found)) == len(found) == schedule.totals.sum()
    for source, weight in enumerate(schedule.stages[-1].weights):
        total, size = schedule.totals[source], schedule.sizes[source]
        assert total == size if weight else total <= size


@settings(max_examples=examples(50))
@given(schedules("rebalance"))
def test_rebalance_keeps_the_ratio_of_what_is_left(schedule: Any) -> None:
    counts = np.zeros(len(schedule.sizes))
    dry: frozenset[int] = frozenset()
    before: Any = None
    for position, (source, sample) in enumerate(read(schedule)):
        stage = stage_at(schedule, position)
        weights = [0 if i in dry else weight for i, weight in enumerate(stage.weights)]
        if not any(weights):
            return  # the next milestone came early
        if (dry, stage) != before:
            before, shares = (dry, stage), [Fraction(0)] * len(weights)
            counts[:] = 0
        counts[source] += 1
        shares = [s + Fraction(w, sum(weights)) for s, w in zip(shares, weights, strict=True)]
        assert all(abs(c - s) < 1 for c, s in zip(counts, shares, strict=True))
        if sample + 1 == schedule.sizes[source]:
            dry |= {source}


@settings(max_examples=examples(50))
@given(schedules())
def test_dry_says_when_all_of_a_source_was_read(schedule: Any) -> None:
    for source, dry in enumerate(schedule.dry):
        if dry is None:
            assert schedule.totals[source] < schedule.sizes[source]
        else:
            assert schedule.counts(dry)[source] == schedule.sizes[source]
            assert schedule.counts(dry - 1)[source] == schedule.sizes[source] - 1


@pytest.mark.parametrize(
    ("when_dry", "length", "order"),
    [("stop", 7, "0010010"), ("rebalance", 9, "001001011"), ("repeat", 12, "001001001001")],
)
def test_the_policies_side_by_side(when_dry: str, length: int, order: str) -> None:
    """Five of one source, four of the other, two of the first to one of the second."""
    schedule = Schedule([5, 4], [Stage(0, (2, 1))], when_dry)
    assert schedule.length == length
    assert "".join(str(source) for source, _ in read(schedule)) == order


def test_a_size_beyond_all_data_costs_nothing() -> None:
    schedule = Schedule([10**13, 10**12], [Stage(0, (7, 3)), Stage(10**9, (2, 8))], "stop")
    sources, samples = schedule.at(np.arange(schedule.length - 8, schedule.length))
    assert samples[sources == 1].max() == 10**12 - 1
