from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis.rates.best import Noise, best_of, noise_of
from analysis.rates.grid import Rate, Size, sizes_of
from analysis.rates.law import rate_law
from analysis.reading import read_study
from analysis.reading.study import Run
from benchmarks.analysis_coverage import rates
from tests.golden_text import Golden

LOGS = np.arange(-3.5, -0.9, 0.25)


def curve(at: float, x: np.ndarray = LOGS) -> np.ndarray:
    """A loss over log10 lr with its lowest point at `at`, steeper on the left, as they are."""
    return 3 + 0.2 * (np.exp(-(x - at)) + (x - at) - 1)


def made(
    y: Sequence[float] | np.ndarray, x: np.ndarray = LOGS, model: str = "32d", **more: float
) -> list[Run]:
    return [
        Run(f"{model}-{lr:g}", Path(), "done", None, {"model": model, "lr": 10**lr, "val_loss": loss, **more})
        for lr, loss in zip(x, y, strict=True)
    ]


def size(y: Sequence[float] | np.ndarray, x: np.ndarray = LOGS) -> Size:
    return sizes_of(made(y, x), "lr", "val_loss")[0]


def test_the_lowest_point_lies_between_the_rates() -> None:
    for at in (-2.5, -2.4, -2.1):
        found = best_of(size(curve(at)), None)
        assert found.lr == pytest.approx(10**at, rel=0.15)
        assert found.is_inside
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.lr <= found.high


def test_points_far_away_do_not_bend_it() -> None:
    """A parabola through all points is moved by them."""
    y = curve(-2.0)
    whole = best_of(size(y), None)
    y[:3] += 3
    through_all = np.polyfit(LOGS, y, 2)
    assert abs(-through_all[1] / 2 / through_all[0] + 2.0) > 0.15
    assert best_of(size(y), None).lr == whole.lr


def test_best_rate_just_below_a_cliff_is_the_lowest_measured_one() -> None:
    logs = np.log10([0.001, 0.003, 0.01, 0.03, 0.1])
    found = best_of(size([4.08, 3.35, 3.24, 3.10, math.nan], logs), None)
    assert [found.lr, found.low, found.high] == pytest.approx([0.03, 0.01, 0.1])
    assert (found.edge, found.is_noise_known, found.interval) == (None, False, "0.01 to 0.1 ?")


@pytest.mark.parametrize(("step", "steps_away"), [(0.5, 1), (0.25, 2), (0.301, 2)])
def test_with_one_seed_the_interval_ends_at_rates_three_times_away(step: float, steps_away: int) -> None:
    logs = -2 + step * np.arange(-4, 5)
    found = best_of(size((logs + 2) ** 2, logs), None)
    ends = [10 ** (-2 - steps_away * step), 10 ** (-2 + steps_away * step)]
    assert [found.low, found.high] == pytest.approx(ends)
    assert not found.is_noise_known


def test_with_quiet_seeds_the_interval_ends_at_the_neighbours() -> None:
    found = best_of(size(curve(-2.0)), Noise(1e-6, 3))
    assert [found.low, found.high] == pytest.approx([10**-2.25, 10**-1.75])
    assert found.is_noise_known


def test_an_end_that_noise_hides_is_open() -> None:
    found = best_of(size(curve(-2.0)), Noise(1.0, 20))
    assert (found.low, found.high, found.is_inside) == (None, None, True)
    assert found.interval == "? to ?"


def test_an_unstable_rate_does_not_end_the_interval_by_luck() -> None:
    """Its own seeds differ by more than those near the best."""
    y, logs = np.array([3.5, 3.0, 3.3]), np.array([-3.0, -2.0, -1.0])
    runs = made(y + 0.001, logs) + made(y - 0.001, logs)
    unstable = made([3.5, 3.0, 4.0], logs) + made([3.5, 3.0, 2.6], logs)
    for given, high in ((runs, 0.1), (unstable, None)):
        one = sizes_of(given, "lr", "val_loss")[0]
        assert best_of(one, Noise(0.002, 20)).high == high


def test_noise_is_that_of_rates_near_the_best() -> None:
    y = curve(-2.25)
    wild = np.where(np.abs(LOGS + 2.25) > 0.3, 0.4, 0.01)
    runs = made(y + wild) + made(y - wild)
    noise = noise_of(sizes_of(runs, "lr", "val_loss"))
    assert noise is not None
    assert (noise.deviation, noise.freedom) == (pytest.approx(0.01 * 2**0.5), 3)
    assert noise_of([size(y)]) is None


def test_rates_that_differ_by_rounding_are_one() -> None:
    runs = made([3.0, 3.1, 3.2], np.log10([0.000345, 0.0003453, 0.000355]))
    rates = sizes_of(runs, "lr", "val_loss")[0].rates
    assert [(rate.lr, len(rate.losses)) for rate in rates] == [
        (pytest.approx(0.000345), 2),
        (pytest.approx(0.000355), 1),
    ]


@pytest.mark.parametrize("after", [[8.0, 9.0], [math.nan, math.nan], [math.inf, 3.9]])
def test_runs_that_diverged_do_not_bend_it(after: list[float]) -> None:
    y = curve(-2.0)
    whole = best_of(size(y[:-2], LOGS[:-2]), None)
    y[-2:] = after
    assert best_of(size(y), None).lr == pytest.approx(whole.lr)


def test_half_diverged_is_told_and_left_out() -> None:
    y = curve(-2.0)[:10]
    y[-1] += 1.5
    found = size(y, LOGS[:10])
    assert [rate.half for rate in found.rates] == [False] * 9 + [True]
    assert len(found.good) == 9
    assert not any(rate.half for rate in size(curve(-2.0)).rates)
    assert found.diverged_at == ["0.0562 (half)"]


def test_where_runs_diverged_in_words() -> None:
    runs = made([3, 2, 3, math.nan, math.nan], LOGS[:5]) + made([math.nan, 2], LOGS[2:4])
    assert sizes_of(runs, "lr", "val_loss")[0].diverged_at == [
        "0.001 (1 of 2 runs)",
        "0.00178 (1 of 2 runs)",
        "0.00316",
    ]


@pytest.mark.parametrize(("at", "edge", "open_end"), [(-4.5, "low", "low"), (0.5, "high", "high")])
def test_a_best_at_the_edge_is_no_best(at: float, edge: str, open_end: str) -> None:
    found = best_of(size(curve(at)), None)
    assert found.edge == edge
    assert not found.is_inside
    assert getattr(found, open_end) is None


def test_an_edge_behind_which_all_diverged_is_none() -> None:
    y = curve(0.5)
    y[-2:] = math.nan
    found = best_of(size(y), None)
    assert found.edge is None
    assert found.lr == pytest.approx(10 ** LOGS[-3])
    assert found.high == pytest.approx(10 ** LOGS[-2])


def test_losses_that_are_all_equal_have_no_best(golden: Golden) -> None:
    found = best_of(size([3.5] * 5, LOGS[:5]), None)
    assert (found.lr, found.edge) == (None, None)
    golden.text(str(found.why_not))


def test_two_rates_are_too_few(golden: Golden) -> None:
    found = best_of(size([3, 4], LOGS[:2]), None)
    assert found.lr is None
    golden.text(str(found.why_not))


@pytest.mark.parametrize(("step", "seeds"), [(0.5, 1), (0.5, 2), (0.25, 1), (0.25, 2)])
@pytest.mark.parametrize("kind", ["real", "cliff", "four sizes"])
def test_interval_holds_the_truth_and_the_lowest_rate(kind: str, step: float, seeds: int) -> None:
    """A part of benchmarks/analysis_coverage.py, where there are 400 sweeps of each case."""
    found = rates(kind, step, seeds, 80)
    assert found["sweeps"] >= 76
    assert found["holds_the_truth"] >= 0.9
    assert found["holds_the_lowest"]
    assert found["closed"] > 0.6, "an interval without ends says nothing"
    assert found["median_width_decades"] >= 2 * step


def test_the_law_over_width() -> None:
    generator = np.random.default_rng(3)
    found = []
    for width in (32, 64, 128, 256):
        at = math.log10(0.5 * width**-0.9)
        runs = made(curve(at) + 0.002 * generator.normal(size=len(LOGS)), model=f"{width}d")
        found.append(best_of(sizes_of(runs, "lr", "val_loss")[0], None))
    law = rate_law(found)
    assert law is not None
    assert law.exponent.value == pytest.approx(-0.9, abs=0.1)
    assert law.exponent.low < -0.9 < law.exponent.high
    assert law.r2 > 0.98
    assert law.at(512) == pytest.approx(0.5 * 512**-0.9, rel=0.3)
    assert rate_law(found[:2]) is None


def test_sizes_are_told_apart_by_their_budget_where_they_have_several() -> None:
    runs = made(curve(-2), budget_tokens=5_000_000) + made(curve(-2.5), budget_tokens=10_000_000)
    assert [one.name for one in sizes_of(runs, "lr", "val_loss")] == ["32d at 10M tokens", "32d at 5M tokens"]


def test_a_rate_knows_what_became_of_its_runs() -> None:
    runs = made([3.0, math.nan], np.array([-2.0, -2.0]))
    rate = sizes_of(runs, "lr", "val_loss")[0].rates[0]
    assert (rate.losses, len(rate.lost), rate.has_diverged) == ((3.0,), 1, False)
    assert Rate(0.1, (), ("a",)).has_diverged


GOALS = {"32d": (0.0130, 0.0164), "48d": (0.0086, 0.0110), "64d": (0.0064, 0.0079), "96d": (0.0047, 0.0052)}


def test_the_goals_on_a_real_sweep(shared_data: Path) -> None:
    study = read_study([str(shared_data / "lr_sweep")], pattern="{model}_lr_{log10_lr}.csv")
    sizes = sizes_of(study.runs, "lr", "validation_loss")
    noise = noise_of(sizes)
    found = {one.model: best_of(one, noise) for one in sizes}
    assert [*found] == [*GOALS]
    for model, (low, high) in GOALS.items():
        best = float(f"{found[model].lr:.2g}")  # as the goals are rounded
        assert low <= best <= high, model
        assert (found[model].low or 1) <= low
        assert (found[model].high or 0) >= high
    assert [rate.lr for rate in found["64d"].size.rates if rate.half] == [pytest.approx(10**-1.25)]
    rates = found["64d"].size.rates
    through_all = np.polyfit(np.log10([rate.lr for rate in rates]), [rate.mean for rate in rates], 2)
    assert 10 ** (-through_all[1] / 2 / through_all[0]) < GOALS["64d"][0]  # which is wrong
