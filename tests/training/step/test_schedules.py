from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from conf import Config
from conf.between_keys.schedule_rules import WITHOUT_AN_END
from conf.budget import Budget
from conf.schema import Model, Optimizer, Schedule
from training.step.schedules import SCHEDULES, Course, course_of, warmup_steps

PEAK = 3e-3
WITH_AN_END = sorted(set(SCHEDULES) - set(WITHOUT_AN_END) - {"one_cycle"})
schedules = st.builds(
    Schedule,
    name=st.sampled_from(WITH_AN_END),
    warmup_fraction=st.floats(0, 0.5),
    final_lr_fraction=st.floats(0, 1),
    decay_fraction=st.floats(0, 0.5),
    decay_shape=st.sampled_from(["sqrt", "linear", "cosine"]),
)


def of(total: int, schedule: Schedule, peak: float = PEAK, batch_tokens: int = 10) -> Course:
    budget = Budget(total, total * batch_tokens, 1, batch_tokens, 1, 1, 1.0)
    config = Config(model=Model(d_model=64), optimizer=Optimizer(lr=peak), schedule=schedule)
    return course_of(config, budget)


def course(total: int, schedule: Schedule, peak: float = PEAK) -> list[float]:
    made = of(total, schedule, peak)
    return [made.lr_at(step) for step in range(total)]


def ramp(total: int, schedule: Schedule) -> int:
    return warmup_steps(schedule, Budget(total, total * 10, 1, 10, 1, 1, 1.0))


@given(schedules, st.integers(1, 300))
def test_every_step_moves_and_none_passes_the_peak(schedule: Schedule, total: int) -> None:
    assert all(0 < lr <= PEAK for lr in course(total, schedule))


@given(schedules, st.integers(1, 300))
def test_it_rises_to_the_peak_and_never_again(schedule: Schedule, total: int) -> None:
    lrs, warmup = course(total, schedule), ramp(total, schedule)
    rising, falling = lrs[:warmup], lrs[warmup:]
    assert rising == sorted(rising)
    assert len(set(rising)) == len(rising)
    assert falling == sorted(falling, reverse=True)
    assert max(lrs) == PEAK
    if falling:
        assert falling[0] == PEAK
        assert falling[-1] >= PEAK * schedule.final_lr_fraction * (1 - 1e-12)


@given(schedules, st.integers(1, 300))
def test_the_end_of_the_run_is_the_final_fraction(schedule: Schedule, total: int) -> None:
    made = of(total, schedule)
    end = made.lr_at(total)
    if made.length.warmup == total:
        return
    stays = schedule.name in ("constant", "stable") or made.length.decay_from == total
    assert end == pytest.approx(PEAK * (1.0 if stays else schedule.final_lr_fraction), abs=1e-12)


@given(schedules, st.integers(150, 300))
def test_there_is_no_jump(schedule: Schedule, total: int) -> None:
    """From a step to the next at most what a line over the shortest part would go; of sqrt its first step."""
    made = of(total, schedule)
    lrs = [*course(total, schedule), made.lr_at(total)]
    parts = [made.length.warmup, total - made.length.decay_from]
    shortest = min((part for part in parts if part), default=total)
    steepest = math.pi / 2 / shortest if schedule.decay_shape != "sqrt" else 1 / math.sqrt(shortest)
    assert all(abs(b - a) <= PEAK * steepest * (1 + 1e-9) for a, b in itertools.pairwise(lrs))


@given(st.sampled_from(WITHOUT_AN_END), st.integers(1, 300), st.integers(0, 60))
def test_by_the_step_alone(name: str, total: int, warmup: int) -> None:
    """A longer run has the same beginning; the formula of the paper where d_model and warm-up are in it."""
    schedule = Schedule(name, warmup_steps=warmup)
    lrs = course(total, schedule, peak=1.0)
    assert course(total + 50, schedule, peak=1.0)[:total] == lrs
    w = max(1, warmup)
    noam = [64**-0.5 * min((t + 1) ** -0.5, (t + 1) * w**-1.5) for t in range(total)]
    scale = (64 * w) ** -0.5 if name == "inverse_sqrt" else 1.0
    assert [lr * scale for lr in lrs] == pytest.approx(noam, rel=1e-9)


@pytest.mark.parametrize("total", [10, 100, 1000])
def test_one_cycle_is_that_of_torch(total: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=PEAK, total_steps=total, pct_start=0.3, cycle_momentum=False
    )
    expected = []
    for _ in range(total):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step() if len(expected) < total else None
    found = course(total, Schedule("one_cycle", warmup_fraction=0.3, final_lr_fraction=4e-6))
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_a_run_of_one_step_has_the_peak(name: str, fraction: float) -> None:
    schedule = Schedule(name, warmup_fraction=fraction, final_lr_fraction=0)
    made = of(1, schedule)
    assert made.lr_at(0) == made.peak


@pytest.mark.parametrize("name", ["cosine_warmup", "linear_warmup", "wsd"])
def test_without_a_fraction_there_is_no_warmup(name: str) -> None:
    assert course(10, Schedule(name, warmup_fraction=0))[0] == PEAK


@pytest.mark.parametrize("name", ["constant", "cosine"])
def test_shapes_without_warmup_have_none(name: str) -> None:
    assert course(10, Schedule(name, warmup_fraction=0.5))[0] == PEAK


def test_a_warmup_in_steps_or_tokens_stands_for_the_share() -> None:
    by_steps = Schedule("linear_warmup", warmup_steps=7)
    assert course(100, by_steps)[:7] == pytest.approx([PEAK * (step + 1) / 7 for step in range(7)])
    by_tokens = dataclasses.replace(by_steps, warmup_steps=None, warmup_tokens=61)
    assert course(100, by_tokens) == course(100, by_steps)
    assert course(5, by_steps) == pytest.approx([PEAK * (step + 1) / 7 for step in range(5)])


@given(st.integers(20, 300), st.integers(20, 300), st.integers(0, 5))
def test_the_trunk_of_wsd_is_the_same_for_every_budget(short: int, long: int, warmup: int) -> None:
    schedule = Schedule("wsd", warmup_steps=warmup, decay_fraction=0.2)
    first, second = of(min(short, long), schedule), of(max(short, long), schedule)
    trunk = of(max(short, long), Schedule("stable", warmup_steps=warmup))
    for step in range(first.length.decay_from):
        assert first.lr_at(step) == second.lr_at(step) == trunk.lr_at(step)


@given(st.integers(1, 4000), st.integers(1, 400_000), st.sampled_from([10, 20, 25, 30, 50]))
@example(4096, 100_000_000, 20)
@example(4096, 53_248, 20)
def test_a_milestone_of_the_trunk_is_in_time_for_the_decay(
    batch_tokens: int, tokens: int, percent: int
) -> None:
    """A budget of N tokens branches off at the first step that has read (1 - decay_fraction) N."""
    steps = -(-tokens // batch_tokens)
    milestone = -(-(tokens * (100 - percent)) // (100 * batch_tokens))
    made = of(steps, Schedule("wsd", warmup_steps=0, decay_fraction=percent / 100))
    if steps * percent >= 100:
        assert milestone <= made.length.decay_from
        assert made.length.total - made.length.decay_from == steps * percent // 100


def test_values_of_each_shape_by_hand() -> None:
    def at(step: int, name: str, **options: object) -> float:
        schedule = Schedule(name, warmup_fraction=0.1, final_lr_fraction=0.2, **options)  # type: ignore[arg-type]
        return of(100, schedule, peak=1.0).lr_at(step)

    assert [at(step, "constant") for step in (0, 50, 99)] == [1, 1, 1]
    assert at(25, "cosine") == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert [at(step, "cosine_warmup") for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1, 1])
    assert at(55, "cosine_warmup") == pytest.approx(0.6)
    assert [at(step, "linear_warmup") for step in (0, 9, 10, 55, 100)] == pytest.approx([0.1, 1, 1, 0.6, 0.2])
    assert [at(step, "wsd") for step in (4, 79, 80, 85, 100)] == pytest.approx([0.5, 1, 1, 0.6, 0.2])
    assert at(90, "wsd", decay_shape="linear") == pytest.approx(0.6)
    assert at(85, "wsd", decay_shape="cosine") == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)


@pytest.mark.parametrize("step", [-1, 11])
def test_a_step_outside_of_the_run_is_refused(step: int) -> None:
    with pytest.raises(ValueError, match=r"\b10\b"):
        of(10, Schedule()).lr_at(step)
