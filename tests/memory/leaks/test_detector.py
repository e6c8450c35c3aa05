"""Leaks in simulated traces are found, and clean traces are left alone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import LeakWatch, find_leak
from memory.leaks.detector import LEVELLING_OFF, TOO_EARLY, Leak, critical, upper_tail
from memory.leaks.format import format_growth
from tests.golden_text import Golden
from tests.memory.leaks.leak_traces import CLEAN, OTHERS, leaking
from tests.searched import examples

MB = 1 << 20


def is_leak(amounts: list[float], **options: float) -> bool:
    return find_leak(range(len(amounts)), amounts, **options).is_significant


def first_alarm(amounts: list[float]) -> int | None:
    """Step of the first alarm in a run that looks every 20 steps."""
    watch = LeakWatch()
    for step, amount in enumerate(amounts):
        watch.add(step, amount)
        if step % 20 == 19 and watch.look().is_significant:
            return step
    return None


@pytest.mark.parametrize(
    ("freedom", "tail", "t"),
    [
        (1, 0.025, 12.7062),
        (2, 0.05, 2.91999),
        (5, 0.005, 4.03214),
        (10, 0.0005, 4.58689),
        (30, 0.025, 2.04227),
    ],
)  # from a table of Student's t distribution
def test_students_t(freedom: int, tail: float, t: float) -> None:
    assert critical(tail, freedom) == pytest.approx(t, rel=1e-5)
    assert upper_tail(t, freedom) == pytest.approx(tail, rel=1e-4)
    assert upper_tail(-t, freedom) == pytest.approx(1 - tail, rel=1e-4)
    assert upper_tail(math.inf, freedom) == 0


@given(
    seed=st.integers(0, 10**6),
    slope=st.floats(0.2, 20),
    steps=st.integers(150, 600),
    base=st.floats(100, 50_000),
)
def test_a_steady_leak_with_bounded_noise_is_found(seed: int, slope: float, steps: int, base: float) -> None:
    scatter = slope * steps / 40
    r = random.Random(seed)
    amounts = [(base + slope * step + r.uniform(-scatter, scatter)) * MB for step in range(steps)]
    limit = 2 * amounts[-1]
    leak = find_leak(range(steps), amounts, limit_bytes=limit, step_s=0.5)
    assert leak.verdict == "leak"
    assert leak.slope_bytes_per_step == pytest.approx(slope * MB, rel=0.25)
    assert leak.low_bytes_per_step < leak.slope_bytes_per_step < leak.high_bytes_per_step
    assert leak.eta_steps == pytest.approx((limit - amounts[-1]) / leak.slope_bytes_per_step, rel=0.1)
    assert leak.eta_s == leak.eta_steps * 0.5


def alarms(kind: str, traces: int, steps: int, bytes_per_step: float = 0.0) -> int:
    made = (leaking(kind, 10_000 + seed, steps, bytes_per_step) for seed in range(traces))
    return sum(first_alarm(amounts) is not None for amounts in made)


def test_clean_runs_are_left_alone() -> None:
    """At most 2% of the kinds that the detector is made for; each of the others at most 5 of 20."""
    assert sum(alarms(kind, 40, 300) for kind in CLEAN) <= 0.02 * 40 * len(CLEAN)
    assert {kind: count for kind in OTHERS if (count := alarms(kind, 20, 300)) > 5} == {}


def test_one_megabyte_a_step_is_found_within_200() -> None:
    """In 95% of the runs; a pool that still fills can look like one that levels off."""
    found = {kind: alarms(kind, 40, 200, MB) for kind in CLEAN}
    assert sum(found.values()) >= 0.95 * 40 * len(CLEAN)
    assert {kind for kind, count in found.items() if count < 36} <= {"warm_up"}


@pytest.mark.parametrize(("kind", "least"), [("waves", 12), ("uneven_teeth", 17), ("distinct", 16)])
def test_a_leak_under_regular_growth_is_found(kind: str, least: int) -> None:
    """In 20 traces: it raises the floor of garbage that is collected, and a cache grows ever less."""
    assert alarms(kind, 20, 240, MB) >= least


@settings(max_examples=examples(50))
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["correlated", "sawtooth", "wandering", "jumps"]))
def test_a_leaking_trace_in_random_order_is_no_leak(seed: int, kind: str) -> None:
    amounts = leaking(kind, seed, 300, MB)
    random.Random(seed).shuffle(amounts)
    assert not is_leak(amounts, alpha=1e-4)  # by chance one in some thousand can be


@given(
    seed=st.integers(0, 200),
    kind=st.sampled_from(list(CLEAN)),
    scale=st.sampled_from([1e-3, 0.5, 1024.0]),
    stretch=st.sampled_from([0.01, 3.0, 100.0]),
    shift=st.sampled_from([0.0, 1e9]),
)
def test_units_and_origin_do_not_matter(
    seed: int, kind: str, scale: float, stretch: float, shift: float
) -> None:
    amounts = leaking(kind, seed, 200, MB / 2)
    one = find_leak(range(200), amounts, least_growth_bytes=0)
    steps = [shift + stretch * step for step in range(200)]
    other = find_leak(steps, [scale * amount for amount in amounts], least_growth_bytes=0)
    assert other.is_significant == one.is_significant
    assert other.slope_bytes_per_step == pytest.approx(
        one.slope_bytes_per_step * scale / stretch, rel=1e-4, abs=1e-6 * MB * scale / stretch
    )


@pytest.mark.parametrize("length", [0, 1, 2, 10, 15, 20])
def test_a_short_trace_has_no_verdict(length: int) -> None:
    leak = find_leak(range(length), [2 * step * MB for step in range(length)])
    assert leak.is_known == (length >= 20)
    assert leak.verdict == ("leak" if length >= 20 else TOO_EARLY)


NO_LEAK: dict[str, Callable[[int], float]] = {
    "flat": lambda step: 5,
    "nothing": lambda step: 0,
    "30 KB": lambda step: 5 + 1e-4 * step,
    "15 MB": lambda step: 5 + 15 * step / 300,
    "falling": lambda step: 900 - step,
    "jump": lambda step: 400 * (step > 150),
    "jumps": lambda step: 40 * (step > 110) + 80 * (step > 170) + 60 * (step > 230),
    "two stairs": lambda step: 180 * min(1, step / 30) + 260 * min(1, max(0, step - 70) / 30),
    "levels off": lambda step: 300 * (1 - math.exp(-step / 40)),
    "logarithm": lambda step: 50 * math.log(1 + step),
    "sawtooth": lambda step: step % 60,
    "spikes": lambda step: 900 * (step % 100 < 3),
}


@pytest.mark.parametrize("shape", NO_LEAK)
def test_shapes_that_are_no_leak(shape: str) -> None:
    amounts = [MB * (100 + NO_LEAK[shape](step)) for step in range(300)]
    assert not is_leak(amounts)
    watch = LeakWatch()
    for step, amount in enumerate(amounts):
        watch.add(step, amount)
        assert not watch.look().is_significant, step


LEAKS: dict[str, Callable[[int], float]] = {
    "after warm-up, spikes and a jump": lambda step: (
        500 * (1 - math.exp(-step / 10)) + 700 * (step % 50 == 0) + 200 * (step > 190)
    ),
    "with two jumps": lambda step: 500 * (step > 120) + 500 * (step > 220),
    "with an early jump": lambda step: 110 * (step > 85),
}


@pytest.mark.parametrize("shape", LEAKS)
def test_other_growth_does_not_hide_a_leak(shape: str) -> None:
    leak = find_leak(range(300), [MB * (300 + LEAKS[shape](step) + 0.5 * step) for step in range(300)])
    assert leak.is_significant
    assert leak.slope_bytes_per_step == pytest.approx(MB / 2, rel=0.1)


def test_the_last_tooth_of_a_sawtooth_is_no_leak() -> None:
    r = random.Random(0)
    amounts = [(100 + step % 200) * MB + r.gauss(0, MB) for step in range(800)]
    assert not any(is_leak(amounts[:end]) for end in range(580, 800, 20))


def test_a_leak_that_begins_late_is_found_as_soon_in_constant_memory() -> None:
    watch = LeakWatch()
    for step, amount in enumerate(leaking("white", 3, 20_300, MB, begin=20_000)):
        watch.add(step, amount)
        if step == 19_999:
            assert not watch.look().is_significant
    leak = watch.look()
    assert leak.is_significant
    assert leak.since_step > 19_900
    assert len(watch._points) + len(watch._recent) < 1000


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(list(CLEAN)))
def test_a_watch_finds_the_same_as_one_look(seed: int, kind: str) -> None:
    amounts = leaking(kind, seed, 1500, MB)
    watch = LeakWatch()
    for step, amount in enumerate(amounts):
        watch.add(step, amount)
    assert watch.look().is_significant
    slope = find_leak(range(1500), amounts).slope_bytes_per_step
    assert watch.look().slope_bytes_per_step == pytest.approx(slope, rel=0.2)


def test_format(golden: Golden) -> None:
    levels_off = [MB * (100 + 300 * (1 - math.exp(-at / 100))) for at in range(400)]
    found = [
        Leak(),
        *(Leak(slope * MB, is_known=True) for slope in (0.3, -0.01, 1e-5, -2, 200)),
        *(Leak(slope * MB, is_known=True, is_significant=True) for slope in (1.1, 0.02, 2048)),
        find_leak(range(400), levels_off),
    ]
    assert found[-1].verdict == LEVELLING_OFF
    golden.text("\n".join(str(format_growth(leak)) for leak in found))
