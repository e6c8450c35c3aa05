from __future__ import annotations

import numpy as np
import pytest

from analysis.fits.chinchilla import Chinchilla, correlation
from analysis.fits.envelope import Curve, bootstrap_runs, envelope
from analysis.fits.isoflop import isoflop
from analysis.fits.parabola import vertex
from analysis.fits.power import LineInLogs, PowerLaw
from analysis.fits.result import fit_law
from analysis.fits.uncertainty import Interval, bootstrap, interval, profile_of_e
from analysis.reading.study import Run
from tests.golden_text import Golden

TRUE = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
"""Of Hoffmann et al. 2022."""


def runs_of(x: np.ndarray, y: np.ndarray) -> list[Run]:
    from pathlib import Path

    return [
        Run(
            f"r{place}",
            Path(),
            "done",
            None,
            {"non_embedding": n, "tokens": d, "flops": 6 * n * d, "val_loss": loss},
        )
        for place, ((n, d), loss) in enumerate(zip(x.tolist(), y.tolist(), strict=True))
    ]


def grid(ratios: tuple[int, ...] = (5, 20, 80, 320)) -> np.ndarray:
    return np.array([(n, n * ratio) for n in np.geomspace(1e6, 3e8, 6) for ratio in ratios])


def loss(x: np.ndarray) -> np.ndarray:
    return TRUE["E"] + TRUE["A"] * x[:, 0] ** -TRUE["alpha"] + TRUE["B"] * x[:, 1] ** -TRUE["beta"]


@pytest.mark.parametrize("method", ["huber", "least-squares"])
def test_chinchillas_numbers_come_back(method: str) -> None:
    x = grid()
    law = Chinchilla.of(x, method)
    theta = law.fit(x, loss(x))
    found = law.values(theta)
    assert {name: found[name] for name in ("E", "alpha", "beta", "a")} == pytest.approx(
        {"E": 1.69, "alpha": 0.34, "beta": 0.28, "a": 0.28 / 0.62}, rel=0.02
    )
    assert law.predict(theta, x) == pytest.approx(loss(x), rel=1e-3)


def test_its_derivatives_are_those_of_its_losses() -> None:
    x = grid()
    law = Chinchilla.of(x)
    theta = np.array([1.5, 0.3, 0.3, 0.2, 0.25])
    for place in range(5):
        step = np.zeros(5)
        step[place] = 1e-6
        slope = (law.predict(theta + step, x) - law.predict(theta - step, x)) / 2e-6
        assert law.jacobian(theta, x)[:, place] == pytest.approx(slope, abs=1e-6)


@pytest.mark.slow
def test_chinchillas_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Each of its numbers, a too; with the points drawn that the fit goes through, E is outside too often."""
    x, rounds = grid((5, 40, 320)), 60
    law = Chinchilla.of(x)
    run_state = law.fit(x, loss(x))
    inside = dict.fromkeys(law.values(run_state), 0)
    for seed in range(rounds):
        y = loss(x) * np.exp(0.003 * np.random.default_rng(seed).normal(size=len(x)))
        theta = law.fit(x, y, start=run_state)
        drawn = [law.values(one) for one in bootstrap(law, theta, x, y, draws=60, seed=seed)]
        for name, value in law.values(theta).items():
            found = interval(value, [one[name] for one in drawn])
            inside[name] += found.low <= law.values(run_state)[name] <= found.high
    for name, count in inside.items():
        assert 0.9 <= count / rounds <= 1, (name, count / rounds)


def test_the_one_point_that_a_robust_fit_leaves_still_says_how_unsure_it_is() -> None:
    """Of four sizes Huber's fit goes through three."""
    x = np.geomspace(1e15, 1e18, 4)
    y = (2 + 300 * x**-0.15) * np.exp([0.0, 0.02, -0.02, 0.01])
    law = PowerLaw.of(x, "huber")
    theta = law.fit(x, y)
    alphas = bootstrap(law, theta, x, y, draws=40)[:, 2]
    assert np.ptp(alphas) > 0.01


def test_sizes_and_tokens_that_go_together_are_seen() -> None:
    n = np.geomspace(1e6, 1e9, 8)
    assert correlation(np.column_stack([n, 20 * n])) == pytest.approx(1)
    assert correlation(np.column_stack([n, np.full(8, 1e9)])) == 1
    assert correlation(grid()) < 0.98


def test_the_best_size_of_each_budget_and_how_it_grows() -> None:
    """With E, A and B as they are the best N is C^(beta / (alpha + beta)) times a constant."""
    x = np.array(
        [
            (n, c / 6 / n)
            for c in (1e17, 1e18, 1e19, 1e20)
            for n in np.geomspace(0.2, 5, 7) * 0.6 * (c / 6) ** 0.45 * 1.3
        ]
    )
    found = isoflop(runs_of(x, loss(x)), "flops", "non_embedding", "val_loss")
    assert [budget.why_not for budget in found.budgets] == [None] * 4
    assert found.exponent is not None
    assert found.exponent.value == pytest.approx(0.28 / 0.62, abs=0.02)
    assert found.exponent.low <= 0.28 / 0.62 <= found.exponent.high
    closed_form = (0.34 * 406.4 / (0.28 * 410.7)) ** (1 / 0.62) * (1e19 / 6) ** (0.28 / 0.62)
    assert found.best_size(1e19) == pytest.approx(closed_form, rel=0.1)


def test_a_budget_without_a_lowest_point_inside_tells_so(golden: Golden) -> None:
    x = np.array([(n, 1e18 / 6 / n) for n in (1e6, 2e6, 4e6)])
    found = isoflop(runs_of(x, loss(x)), "flops", "non_embedding", "val_loss")
    golden.text(str(found.budgets[0].why_not))
    assert found.exponent is None
    with golden.refused("too-few-sizes"):
        isoflop(runs_of(grid()[:2], loss(grid()[:2])), "flops", "non_embedding", "val_loss")


def made_curves() -> list[Curve]:
    """Sizes that are the best in turn: each falls to a floor of its own."""
    curves = []
    for n in np.geomspace(1e6, 1e8, 8):
        flops = np.geomspace(6 * n * n * 0.5, 6 * n * n * 400, 60)
        curves.append(Curve(f"{n:.2g}", flops, loss(np.column_stack([np.full(60, n), flops / 6 / n]))))
    return curves


def test_the_envelope_is_the_lowest_of_all_curves() -> None:
    curves = made_curves()
    found = envelope(curves)
    for x, y, who in zip(found.x, found.y, found.who, strict=True):
        here = [np.interp(np.log(x), np.log(one.x), one.y) for one in curves if one.x[0] <= x <= one.x[-1]]
        assert y == pytest.approx(min(here))
        assert y == pytest.approx(np.interp(np.log(x), np.log(curves[who].x), curves[who].y))
    assert (np.diff(found.y) <= 0).all()
    assert {*found.who.tolist()} < set(range(8))  # the first and the last are alone somewhere
    law = PowerLaw.of(found.x)
    drawn = bootstrap_runs(curves, law, law.fit(found.x, found.y), draws=10)
    assert drawn.shape[1] == 3


def test_curves_that_do_not_cross_have_no_envelope(golden: Golden) -> None:
    x = np.geomspace(1, 100, 20)
    with golden.refused("no-crossing"):
        envelope([Curve("a", x, 5 / x), Curve("b", x, 6 / x)])
    with golden.refused("too-few-runs"):
        envelope([Curve("a", x, 5 / x)])


def test_vertex_of_a_parabola() -> None:
    x = np.array([-3.0, -2.5, -2.0, -1.5])
    assert vertex(x, 5 + 0.3 * (x + 2.2) ** 2) == (pytest.approx(-2.2), pytest.approx(5))
    assert vertex(x, 5 - 0.3 * (x + 2.2) ** 2) is None
    assert vertex(x[:2], x[:2]) is None
    assert vertex(np.array([1.0, 1, 1]), x[:3]) is None


def test_an_interval_holds_its_value() -> None:
    assert interval(5.0, [1.0, 2.0, float("nan"), 3.0]) == Interval(5.0, 1.0, 5.0)
    assert Interval(2.0, 1.0, float("inf")).to_json() == {"value": 2.0, "low": 1.0, "high": None}


def test_the_bootstrap_is_as_wide_as_theory_has_it() -> None:
    """Sandwich of residuals over 1 - leverage (HC3) and their root mean square, by t (6)."""
    x = np.geomspace(1e3, 1e6, 8)
    y = 3 + 10 * x**-0.3 + 0.002 * np.random.default_rng(3).normal(size=8)
    law = LineInLogs.of(x, fixed_e=2.0)
    theta = law.fit(x, y)
    drawn = bootstrap(law, theta, x, y, draws=600)[:, 1:]
    falling, u = y - 2, np.log(x) - np.log(x).mean()
    derivatives = np.column_stack([np.ones(8), -u])
    solved = np.linalg.pinv(derivatives)
    left = 1 - np.einsum("ij,ji->i", derivatives, solved)
    own = np.abs(np.log(falling) - derivatives @ theta[1:]) / left * falling
    own = np.hypot(own, np.sqrt((own**2).mean()))
    asked = 2.447 * np.sqrt(((solved * own / falling) ** 2).sum(axis=1))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert (high - low) / 2 == pytest.approx(asked, rel=0.15)


def test_one_bad_run_does_not_widen_the_interval_of_a_robust_fit() -> None:
    x = np.geomspace(1e3, 1e6, 11)
    y = 3 + 10 * x**-0.3 + 0.01 * np.random.default_rng(3).normal(size=11)
    widths = []
    for off in (0.0, 0.3):
        y[5] += off
        law = PowerLaw.of(x, "huber")
        alphas = bootstrap(law, law.fit(x, y), x, y, draws=40)[:, 2]
        widths.append(float(np.ptp(alphas)))
    assert widths[1] < 4 * widths[0]


def test_every_draw_of_exact_data_is_the_fit_itself() -> None:
    x = np.geomspace(1e3, 1e6, 6)
    y = 3 + 10 * x**-0.3
    fit = fit_law(PowerLaw.of(x), x, y, list("abcdef"), draws=20)
    assert fit.values["E"].low == pytest.approx(3, abs=1e-4)
    assert fit.values["E"].high == pytest.approx(3, abs=1e-4)
    assert fit.identified
    far = fit.predict(np.array([1e8]), x)
    assert (far.is_far, far.times) == (True, pytest.approx(100))
    assert far.loss.value == pytest.approx(3 + 10 * 1e8**-0.3, abs=1e-4)
    assert not fit.predict(np.array([1e7]), x).is_far
    assert fit.predict(np.array([1e2]), x).times == pytest.approx(10)


def test_profile_ends_where_the_fit_is_no_longer_as_good() -> None:
    from dataclasses import replace

    from scipy import stats

    x = np.geomspace(1e3, 1e6, 9)
    y = 3 + 10 * x**-0.3 + 0.01 * np.random.default_rng(5).normal(size=9)
    law = PowerLaw.of(x)
    theta = law.fit(x, y)
    low, high = profile_of_e(law, theta, x, y, lambda e: replace(law, fixed_e=e))
    most = law.cost(theta, x, y) * (1 + stats.f.ppf(0.95, 1, 6) / 6)
    for end in (low, high):
        fixed = replace(law, fixed_e=end)
        assert fixed.cost(fixed.fit(x, y), x, y) == pytest.approx(most, rel=1e-3)
    assert low < 3 < high
