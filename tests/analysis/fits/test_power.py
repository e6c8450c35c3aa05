from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.fits.power import LineInLogs, PowerLaw, r_squared
from analysis.fits.uncertainty import bootstrap, interval, is_identified, leave_one_out, profile_of_e
from benchmarks.analysis_coverage import fits

X = np.geomspace(7e14, 2e17, 11)
TRUE = {"E": 2.6, "A": 290.0, "alpha": 0.134}


def losses(x: np.ndarray = X, deviation: float = 0.0, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=len(x))
    return TRUE["E"] + TRUE["A"] * x ** -TRUE["alpha"] + deviation * noise


@pytest.fixture(scope="module")
def curves(root: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """theoretical_flops, total_flops_profiler, validation_loss of the last rows of real runs."""
    folder = root.parent / "shared" / "data" / "scaling_runs" / "x2_modern"
    if not folder.is_dir():
        pytest.skip("no ../shared/data/scaling_runs beside this checkout")
    rows = [list(csv.DictReader(path.open()))[-1] for path in sorted(folder.glob("*.csv"))]
    names = ("theoretical_flops", "total_flops_profiler", "validation_loss")
    x, other, y = (np.array([float(row[name]) for row in rows]) for name in names)
    return x, other, y


@pytest.mark.parametrize("method", ["least-squares", "huber"])
def test_a_known_truth_is_found(method: str) -> None:
    law = PowerLaw.of(X, method)
    found = law.values(law.fit(X, losses()))
    assert found == pytest.approx(TRUE, rel=2e-3)


def test_a_law_without_a_floor_has_none() -> None:
    y = 300 * X**-0.12 * np.exp(0.002 * np.random.default_rng(1).normal(size=len(X)))
    law = PowerLaw.of(X)
    theta = law.fit(X, y)
    assert 0 <= theta[0] < 0.5
    assert law.values(law.fit(X, 300 * X**-0.12 - 0.05))["E"] == 0  # never below it


def test_the_best_of_many_starts_is_no_worse_than_the_truth() -> None:
    for seed in range(5):
        y = losses(deviation=0.05, seed=seed)
        law = PowerLaw.of(X)
        run_state = np.array([2.6, np.log(290) - 0.134 * law.log_x0, 0.134])
        assert law.cost(law.fit(X, y), X, y) <= law.cost(run_state, X, y) + 1e-12


def test_one_bad_run_moves_least_squares_and_not_huber() -> None:
    y = losses(deviation=0.002)
    y[5] += 0.3
    off = {}
    for method in ("least-squares", "huber"):
        law = PowerLaw.of(X, method)
        off[method] = abs(law.values(law.fit(X, y))["alpha"] - TRUE["alpha"])
    assert off["huber"] < 0.01 < off["least-squares"]


def test_the_goals_on_real_curves(curves: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, other, y = curves
    assert len(x) == 11
    law = PowerLaw.of(x)
    theta = law.fit(x, y)
    found = law.values(theta)
    assert found["E"] == pytest.approx(2.6034, abs=5e-5)
    assert found["A"] == pytest.approx(293.84, abs=0.01)
    assert found["alpha"] == pytest.approx(0.13441, abs=5e-6)
    assert r_squared(y, law.predict(theta, x)) == pytest.approx(0.99970, abs=5e-6)
    line = LineInLogs.of(x, fixed_e=1.9)
    fixed = line.values(line.fit(x, y))
    assert fixed["A"] == pytest.approx(108.51, abs=0.01)
    assert fixed["alpha"] == pytest.approx(0.09931, abs=1e-5)
    law = PowerLaw.of(other)
    assert law.values(law.fit(other, y))["E"] == pytest.approx(2.556, abs=5e-4)


def profile(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    law = PowerLaw.of(x)
    return profile_of_e(law, law.fit(x, y), x, y, lambda e: replace(law, fixed_e=e))


def test_e_is_identified_by_good_data_and_not_by_few_or_noisy_ones() -> None:
    low, high = profile(X, losses(deviation=0.005))
    assert low < 2.6 < high
    assert is_identified(low, high, losses())
    for x, deviation in ((X, 0.15), (np.geomspace(1e16, 4e16, 5), 0.01)):
        y = losses(x, deviation)
        low, high = profile(x, y)
        assert not is_identified(low, high, y)
        assert low == 0
        assert high < y.min()


def test_with_no_run_to_spare_nothing_is_sure() -> None:
    x = X[[0, 5, 10]]
    assert profile(x, losses(x)) == (0.0, pytest.approx(losses(x).min()))


def test_leaving_one_out_finds_the_run_that_is_off() -> None:
    y = losses(deviation=0.001)
    y[4] += 0.2
    law = PowerLaw.of(X)
    left = leave_one_out(law, law.fit(X, y), X, y, [f"s{place}" for place in range(len(X))])
    worst = max(left, key=lambda one: abs(one.error))
    assert (worst.name, worst.error) == ("s4", pytest.approx(0.2, abs=0.03))
    assert worst.values["E"] == pytest.approx(2.6, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "rounds", "draws"), [("least-squares", 200, 200), ("huber", 40, 40)])
def test_the_intervals_hold_the_truth_as_often_as_they_say(method: str, rounds: int, draws: int) -> None:
    """Without the widening for leverage and few sizes it is under 90%: the naive interval fails here. Nor are
    the intervals more than 2.2 times as wide as 95% of the estimates spread.
    """
    inside = dict.fromkeys(TRUE, 0)
    estimates: dict[str, list[float]] = {name: [] for name in TRUE}
    widths: dict[str, list[float]] = {name: [] for name in TRUE}
    for seed in range(rounds):
        y = losses(deviation=0.01, seed=1000 + seed)
        law = PowerLaw.of(X, method)
        theta = law.fit(X, y)
        drawn = [law.values(one) for one in bootstrap(law, theta, X, y, draws=draws, seed=seed)]
        for name, value in law.values(theta).items():
            found = interval(value, [one[name] for one in drawn])
            inside[name] += found.low <= TRUE[name] <= found.high
            estimates[name].append(value)
            widths[name].append(found.high - found.low)
    for name, count in inside.items():
        assert count / rounds >= (0.90 if rounds >= 200 else 0.85), name
        assert np.median(widths[name]) <= 2.2 * 3.92 * np.std(estimates[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["small noisier", "large noisier", "large noisier, skewed"])
def test_intervals_hold_the_truth_when_noise_differs_by_size(kind: str) -> None:
    """A part of benchmarks/analysis_coverage.py."""
    found = fits("least-squares", 11, kind, 100)["holds"]
    assert min(found.values()) >= 0.9


@pytest.mark.slow
def test_the_profile_of_e_holds_the_truth_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(200):
        low, high = profile(X, losses(deviation=0.01, seed=2000 + seed))
        inside += low <= TRUE["E"] <= high
    assert 0.90 <= inside / 200 <= 0.98
