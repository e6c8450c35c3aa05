from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis.rates.best import best_of, noise_of
from analysis.rates.grid import Rate, Size, sizes_of
from analysis.rates.law import rate_law
from analysis.reading import read_study
from analysis.reading.study import Run

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
    """A parabola through all points, which is what this is not, goes astray."""
    y = curve(-2.0)
    y[:3] += 3
    through_all = np.polyfit(LOGS, y, 2)
    assert abs(-through_all[1] / 2 / through_all[0] + 2.0) > 0.15
    assert math.log10(best_of(size(y), None).lr or 1) == pytest.approx(-2.0, abs=0.07)


def test_the_interval_holds_every_choice_of_points() -> None:
    found = best_of(size(curve(-2.1)), None)
    assert len(found.vertices) == 3
    assert found.low == pytest.approx(min(found.vertices.values()))
    assert found.high == pytest.approx(max(found.vertices.values()))


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


def test_losses_that_are_all_equal_have_no_best() -> None:
    found = best_of(size([3.5] * 5, LOGS[:5]), None)
    assert (found.lr, found.edge) == (None, None)
    assert found.why_not == "all its losses are equal: there is no best"


def test_two_rates_are_too_few() -> None:
    found = best_of(size([3, 4], LOGS[:2]), None)
    assert found.lr is None
    assert found.why_not == "2 rates with a loss: needs >= 3"


def test_seeds_tell_the_noise_and_else_what_is_off_a_smooth_curve() -> None:
    generator = np.random.default_rng(0)
    y = curve(-2.1)
    seeds = [run for _ in range(6) for run in made(y + 0.01 * generator.normal(size=len(y)))]
    sizes = sizes_of(seeds, "lr", "val_loss")
    noise = noise_of(sizes)
    assert noise is not None
    assert noise.from_seeds
    assert noise.deviation == pytest.approx(0.01, rel=0.25)
    assert noise.freedom == 5 * len(y)
    alone = noise_of(
        [
            size(curve(-2.1 + shift) + 0.01 * generator.normal(size=len(y)))
            for shift in np.linspace(0, 0.3, 12)
        ]
    )
    assert alone is not None
    assert not alone.from_seeds
    assert alone.deviation == pytest.approx(0.01, rel=0.4)


def test_seeds_that_differ_more_widen_the_interval() -> None:
    generator = np.random.default_rng(1)
    widths = []
    for deviation in (0.001, 0.02):
        y = curve(-2.1)
        runs = [run for _ in range(3) for run in made(y + deviation * generator.normal(size=len(y)))]
        sizes = sizes_of(runs, "lr", "val_loss")
        found = best_of(sizes[0], noise_of(sizes))
        lone = best_of(sizes[0], None)
        width, without = (math.log10((one.high or 0) / (one.low or 1)) for one in (found, lone))
        widths.append(width)
    assert widths[1] > 2 * widths[0]
    assert width > 1.3 * without  # the seeds are in it besides the choice of points


@pytest.mark.slow
def test_the_interval_holds_the_truth() -> None:
    """At least as often as it says: the choice of points is in it besides the noise. The one of a lone
    vertex, without noise, holds it in under half.
    """
    generator = np.random.default_rng(2)
    inside = lone = 0
    for number in range(200):
        at = -2.3 + 0.5 * generator.random()
        y = curve(at)
        runs = [run for _ in range(2) for run in made(y + 0.01 * generator.normal(size=len(y)))]
        sizes = sizes_of(runs, "lr", "val_loss")
        found = best_of(sizes[0], noise_of(sizes), draws=200, seed=number)
        inside += (found.low or 0) <= 10**at <= (found.high or math.inf)
        only = best_of(sizes[0], None)
        lone += (only.low or 0) <= 10**at <= (only.high or math.inf)
    assert inside / 200 >= 0.93
    assert lone / 200 < 0.85


def test_an_edge_that_seeds_have_made_holds_the_truth_too() -> None:
    """Of few rates a flat valley's lowest point is often the outermost one by luck."""
    generator, logs = np.random.default_rng(3), np.arange(-3.0, -1.9, 0.25)
    edges = inside = 0
    for number in range(150):
        y = 3 + 0.1 * (logs + 2.5) ** 2
        runs = [run for _ in range(3) for run in made(y + 0.05 * generator.normal(size=len(y)), logs)]
        sizes = sizes_of(runs, "lr", "val_loss")
        found = best_of(sizes[0], noise_of(sizes), draws=200, seed=number)
        edges += found.edge is not None
        inside += (found.low or 0) <= 10**-2.5 <= (found.high or math.inf)
    assert edges > 15
    assert inside / 150 >= 0.92


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
        assert low <= (found[model].lr or 0) <= high, model
        assert (found[model].low or 1) <= low * 1.01
        assert (found[model].high or 0) >= high * 0.99
    assert [rate.lr for rate in found["64d"].size.rates if rate.half] == [pytest.approx(10**-1.25)]
    rates = found["64d"].size.rates
    through_all = np.polyfit(np.log10([rate.lr for rate in rates]), [rate.mean for rate in rates], 2)
    assert 10 ** (-through_all[1] / 2 / through_all[0]) < GOALS["64d"][0]  # which is wrong
