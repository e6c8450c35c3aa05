"""Ranks agree about stops rarely, and always at the same step."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searched import examples

from training.distributed.agreement import EVERY_S, MOST_STEPS, Schedule, steps_until_next
from training.distributed.ranks import AgreedInterrupt
from training.interrupt import Interrupt

SIGNAL = 15


class Group:
    """All ranks of a run as threads; `largest_of_each` waits for all of them, as a collective does."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=20)
        self._given: dict[int, list[int]] = {}

    def of_rank(self, rank: int) -> Any:
        group, collectives = self, []

        class Ranks:
            @staticmethod
            def check() -> None:
                pass

            @staticmethod
            def largest_of_each(numbers: list[int]) -> list[int]:
                collectives.append(numbers)
                group._given[rank] = numbers
                group._barrier.wait()
                found = [max(each) for each in zip(*group._given.values(), strict=True)]
                group._barrier.wait()
                return found

        ranks: Any = Ranks()
        ranks.collectives = collectives
        return ranks


def run_ranks(
    step_seconds: Sequence[Callable[[int], float]],
    steps: int,
    signal: tuple[int, float] | None = None,
    boundary: int = 10**9,
) -> list[tuple[int, list[float]]]:
    """Train on simulated clocks, one a rank; no other collective keeps the ranks together.

    Args:
        step_seconds: of each rank, how long a step takes it.
        signal: rank, and its time at which it is asked to stop.
        boundary: steps between two places at which ranks agree always.

    Returns:
        The step at which each rank stopped, and the times of its agreements.
    """
    group, found = Group(len(step_seconds)), {}

    def be(rank: int) -> None:
        now, asked, times = 0.0, Interrupt(), []
        interrupt = AgreedInterrupt(asked, group.of_rank(rank), Schedule(lambda: now))
        for step in range(1, steps + 1):
            now += step_seconds[rank](step)
            if signal is not None and signal[0] == rank and now >= signal[1]:
                asked.requested = SIGNAL
            if interrupt.is_due() or step % boundary == 0 or step == steps:
                times.append(now)
                if interrupt.agree() is not None:
                    break
        found[rank] = step, times

    threads = [threading.Thread(target=be, args=(rank,)) for rank in range(len(step_seconds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(len(step_seconds))]


durations = st.lists(st.floats(1e-4, 5.0), min_size=1, max_size=5)


@given(
    ranks=st.lists(durations, min_size=2, max_size=3),
    steps=st.integers(1, 200),
    signal=st.tuples(st.integers(0, 1), st.floats(0, 300)),
    boundary=st.integers(1, 80),
)
@settings(max_examples=examples(30), deadline=None)
def test_a_stop_asked_of_any_rank_at_any_time_ends_all_at_one_step(
    ranks: list[list[float]], steps: int, signal: tuple[int, float], boundary: int
) -> None:
    found = run_ranks(
        [lambda step, own=own: own[step % len(own)] for own in ranks],  # type: ignore[misc]
        steps,
        signal,
        boundary,
    )
    assert len({step for step, _ in found}) == 1
    assert len({len(times) for _, times in found}) == 1
    step, times = found[signal[0]]
    assert step == steps or times[-1] >= signal[1]
    assert all(time < signal[1] for time in times[:-1]), "the first agreement behind the signal ends the run"


@pytest.mark.parametrize("step_s", [0.001, 0.01, 0.3, 4.0])
def test_number_of_collectives_follows_the_time_not_the_steps(step_s: float) -> None:
    steps = 5000 if step_s < 0.1 else 300
    _, times = run_ranks([lambda step: step_s, lambda step: step_s / 3], steps)[0]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(waits) <= max(EVERY_S, step_s) * 1.001
    doublings = 1 + max(0, round(EVERY_S / step_s)).bit_length()
    assert len(times) <= min(steps, doublings + 2 * steps * step_s / EVERY_S)


def test_slower_steps_shorten_the_interval_and_faster_ones_lengthen_it() -> None:
    assert steps_until_next(10, 0.1) == 20, "twice as many at most"
    assert steps_until_next(100, 1.0) == 100
    assert steps_until_next(100, 10.0) == 10
    assert steps_until_next(1, 30.0) == 1
    assert steps_until_next(MOST_STEPS, 0.0) == MOST_STEPS


def test_an_agreement_without_steps_changes_nothing() -> None:
    now = 0.0
    schedule = Schedule(lambda: now)
    for _ in range(4):
        while not schedule.is_due():
            pass
        schedule.agreed(1e-3)
    schedule.agreed(100.0)  # after an evaluation
    assert [schedule.is_due() for _ in range(16)] == [False] * 15 + [True]
