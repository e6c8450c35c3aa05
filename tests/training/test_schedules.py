from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.schema import Optimizer, Schedule
from training.schedules import SCHEDULES, lr_at, warmup_steps

PEAK = 3e-3
names = st.sampled_from(sorted(SCHEDULES))
schedules = st.builds(
    Schedule, name=names, warmup_fraction=st.floats(0, 0.99), final_lr_fraction=st.floats(0, 1)
)


def course(total: int, schedule: Schedule) -> list[float]:
    return [lr_at(step, total, Optimizer(lr=PEAK), schedule) for step in range(total)]


@given(schedules, st.integers(1, 300))
def test_every_step_moves_and_none_passes_the_peak(schedule: Schedule, total: int) -> None:
    assert all(0 < lr <= PEAK for lr in course(total, schedule))


@given(schedules, st.integers(1, 300))
def test_it_rises_to_the_peak_and_never_again(schedule: Schedule, total: int) -> None:
    lrs, warmup = course(total, schedule), warmup_steps(total, schedule)
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
    end = lr_at(total, total, Optimizer(lr=PEAK), schedule)
    if warmup_steps(total, schedule) == total:
        return
    expected = 1.0 if schedule.name == "constant" else schedule.final_lr_fraction
    assert end == pytest.approx(PEAK * expected, abs=1e-12)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_a_run_of_one_step_has_the_peak(name: str, fraction: float) -> None:
    assert course(1, Schedule(name, warmup_fraction=fraction, final_lr_fraction=0)) == [PEAK]


@pytest.mark.parametrize("name", ["cosine_warmup", "linear_warmup"])
def test_without_a_fraction_there_is_no_warmup(name: str) -> None:
    assert course(10, Schedule(name, warmup_fraction=0))[0] == PEAK


@pytest.mark.parametrize("name", ["constant", "cosine"])
def test_shapes_without_warmup_have_none(name: str) -> None:
    assert course(10, Schedule(name, warmup_fraction=0.5))[0] == PEAK


def test_values_of_each_shape_by_hand() -> None:
    def at(step: int, name: str) -> float:
        schedule = Schedule(name, warmup_fraction=0.1, final_lr_fraction=0.2)
        return lr_at(step, 100, Optimizer(lr=1.0), schedule)

    assert [at(step, "constant") for step in (0, 50, 99)] == [1, 1, 1]
    assert at(25, "cosine") == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert [at(step, "cosine_warmup") for step in (0, 4, 9, 10)] == pytest.approx([0.1, 0.5, 1, 1])
    assert at(55, "cosine_warmup") == pytest.approx(0.6)
    assert [at(step, "linear_warmup") for step in (0, 9, 10, 55, 100)] == pytest.approx([0.1, 1, 1, 0.6, 0.2])


@pytest.mark.parametrize("step", [-1, 11])
def test_a_step_outside_of_the_run_is_refused(step: int) -> None:
    with pytest.raises(ValueError, match="of a run of 10 steps"):
        lr_at(step, 10, Optimizer(), Schedule())
