"""Measure how often the 95% intervals of `best-lr`, `fit` and `compare` hold the truth, and their width.

Studies are made whose truth is known, with seeds that are fixed. Learning rates: 400 sweeps of each case,
along splines through real sweeps and along curves that are steep below the best rate, flat above it and end
in a cliff, at steps of 0.5 and 0.25 decades with one and two seeds. Fits and comparisons: noise that is even,
that differs by size or by group, and that is skewed, since some seeds end far too high.

    nice -n 19 python benchmarks/analysis_coverage.py
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from analysis.comparison import Group, compare
from analysis.fits.result import fit_law, power_law
from analysis.rates.best import Best, best_of, noise_of
from analysis.reading.study import Run
from benchmarks.harness import benchmark
from benchmarks.known_truths import made_sweeps, noise

GOAL = 0.9
KINDS = {"real": "real sweeps", "cliff": "cliffs", "four sizes": "cliffs, four sizes of unequal noise"}
STEPS, SEEDS = (0.5, 0.25), (1, 2)
POWER = {"E": 2.6, "A": 290.0, "alpha": 0.134}
FIT_NOISES = (
    "even", "small noisier", "large noisier",
    "even, skewed", "small noisier, skewed", "large noisier, skewed",
)  # fmt: skip
FIT_SIZES = (5, 11)
FIT_DRAWS = {"least-squares": 200, "huber": 100}
DIFFERENCE = 0.02
GROUPS = ((2, 2), (3, 3), (5, 5), (3, 10))
COMPARISONS = 2000


def rates(kind: str, step: float, seeds: int, count: int) -> dict[str, Any]:
    """Coverage of the intervals of the best rate in `count` sweeps of one case."""
    found: list[tuple[Best, float]] = []
    for sizes, truths in made_sweeps(kind, step, seeds, count):
        of_study = noise_of(sizes)
        found += zip([best_of(size, of_study) for size in sizes], [one.best for one in truths], strict=True)
    found = [(best, truth) for best, truth in found if best.lr is not None]
    closed = [(best, truth) for best, truth in found if best.low is not None and best.high is not None]
    return {
        "case": f"{KINDS[kind]}, step {step:g}, {seeds} seed{'s' * (seeds > 1)}", "sweeps": len(found),
        "holds_the_truth": _share(_holds(best, 10**truth) for best, truth in found),
        "closed": round(len(closed) / len(found), 4),
        "closed_ones_hold_the_truth": _share(_holds(best, 10**truth) for best, truth in closed),
        "holds_the_lowest": all(
            _holds(best, min(best.size.good, key=lambda rate: rate.mean).lr) for best, _ in found
        ),
        "median_width_decades": _median(math.log10((best.high or 1) / (best.low or 1)) for best, _ in closed),
        "median_error_decades": _median(
            abs(math.log10(best.lr or 1) - truth) for best, truth in found if best.is_inside
        ),
    }  # fmt: skip


def _holds(best: Best, lr: float) -> bool:
    return (best.low or 0.0) <= lr <= (best.high or math.inf)


def _share(held: Iterable[bool]) -> float:
    each = list(held)
    return round(sum(each) / len(each), 4)


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def fits(method: str, sizes: int, kind: str, count: int) -> dict[str, Any]:
    """Coverage of E, of alpha and of the loss at 10 times the largest size, of `count` power laws."""
    luck = np.random.default_rng(sizes)
    place = np.linspace(0, 1, sizes)
    x = 7e14 * 300**place
    beyond = np.array([10 * x[-1]])
    names = [str(one) for one in range(sizes)]
    held, widths = dict.fromkeys(("E", "alpha", "loss_at_10x"), 0), []
    for _ in range(count):
        y = POWER["E"] + POWER["A"] * x ** -POWER["alpha"] + noise(kind, place, luck)
        fit = fit_law(power_law(x, y, method, None), x, y, names, draws=FIT_DRAWS[method])
        alpha, loss = fit.values["alpha"], fit.predict(beyond, x).loss
        for name in ("E", "alpha"):
            held[name] += fit.values[name].low <= POWER[name] <= fit.values[name].high
        held["loss_at_10x"] += loss.low <= POWER["E"] + POWER["A"] * beyond[0] ** -POWER["alpha"] <= loss.high
        widths.append(alpha.high - alpha.low)
    return {
        "case": f"{method}, {sizes} sizes, {kind}", "fits": count,
        "holds": {name: round(float(number) / count, 4) for name, number in held.items()},
        "median_width_of_alpha": round(statistics.median(widths), 4),
    }  # fmt: skip


def comparisons(
    paired: bool, kind: str, counts: tuple[int, int], factor: float, number: int
) -> dict[str, Any]:
    """Coverage of the difference of two groups; the noise of the second is `factor` times the first's."""
    luck = np.random.default_rng([*counts, round(factor), paired])
    held, widths = 0, []
    first, second = (np.zeros(count) for count in counts)
    for _ in range(number):
        shared = noise(kind, np.zeros(max(counts)), luck) if paired else np.zeros(max(counts))
        one = shared[: counts[0]] + noise(kind, first, luck) / 2
        other = shared[: counts[1]] + factor * noise(kind, second, luck) / 2
        groups = [_group("a", 3 + one, 0), _group("b", 3 + DIFFERENCE + other, 0 if paired else 50)]
        (found,) = compare(groups, "val_loss")
        low, high = found.low or 0.0, found.high or 0.0
        held += low <= DIFFERENCE <= high
        widths.append(high - low)
    return {
        "case": f"{'pairs' if paired else 'no pairs'}, {counts[0]} and {counts[1]} seeds, {kind}, "
        f"noise 1 to {factor:g}",
        "comparisons": number, "holds_the_truth": round(held / number, 4),
        "median_width": round(statistics.median(widths), 4),
    }  # fmt: skip


def _group(name: str, losses: Any, first_seed: int) -> Group:
    values = [
        {"optimizer": name, "seed": first_seed + place, "val_loss": float(loss)}
        for place, loss in enumerate(losses)
    ]
    return Group(name, tuple(Run(f"{name}{one['seed']}", Path(), "done", None, one) for one in values))


@benchmark(sweeps=(400, 4), fits=(100, 2), comparisons=(COMPARISONS, 4))
def measured(chosen: Any) -> Any:
    kinds = "even", "even, skewed"
    methods = [("least-squares", size, chosen.fits) for size in FIT_SIZES]
    methods.append(("huber", FIT_SIZES[1], chosen.fits // 2))
    return {
        "goal": GOAL,
        "best_lr": [rates(*case, chosen.sweeps) for case in itertools.product(KINDS, STEPS, SEEDS)],
        "compare": [
            comparisons(*case, chosen.comparisons)
            for case in itertools.product((True, False), kinds, GROUPS, (1.0, 4.0))
        ],
        "fit": [fits(method, size, kind, count) for method, size, count in methods for kind in FIT_NOISES],
    }
