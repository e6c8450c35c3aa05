"""Made studies with a known truth: curves of real sweeps, curves with a cliff, noise of several kinds."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.rates.grid import Size, sizes_of
from analysis.reading.study import Run
from benchmarks.harness import RESULTS

Array = np.ndarray[Any, np.dtype[np.float64]]
Generator = np.random.Generator

_FIRST, _STEP = -3.25, 0.25
_SWEEPS = {
    "32d": (6.5949, 6.3016, 6.0520, 5.8894, 5.8066, 5.7678, 5.7698, 5.7747, 5.8366),
    "48d": (6.2983, 6.0018, 5.7722, 5.6403, 5.5776, 5.5705, 5.5943, 5.6700, 5.6916),
    "64d": (6.0954, 5.8131, 5.6139, 5.5064, 5.4673, 5.4564, 5.5580, 5.5957, 6.5251),
    "96d": (5.8408, 5.5908, 5.4188, 5.3309, 5.3037, 5.3518, 5.4783, 5.8185, 5.6946),
}
"""Final validation losses of a real sweep: four widths, nine rates from 10^-3.25 in quarter decades."""
_SMOOTHING = 1e-4
_DEVIATION = 0.01
"""Nats: standard deviation of one run over seeds, at the best rate."""
_LIES_HIGH = 0.15
"""Nats: at least so far above the curve is a run beyond the cliff that did not end as nan."""


@dataclass(frozen=True)
class Truth:
    """A loss over log10 lr without noise. best: where it is lowest. cliff: runs diverge above it."""

    first: float
    last: float
    loss: Callable[[Any], Any]
    deviation: Callable[[float], float]
    best: float
    cliff: float = math.inf


def real_truths() -> list[Truth]:
    """Smoothing splines through real sweeps: those above, and the means over seeds of `lr_transfer.json`."""
    from scipy.interpolate import make_smoothing_spline

    curves = [(_FIRST + _STEP * np.arange(len(y)), np.array(y)) for y in _SWEEPS.values()]
    rows: dict[tuple[str, int], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in json.loads((RESULTS / "lr_transfer.json").read_text())["rows"]:
        rows[row["init"], row["width"]][math.log10(row["lr"])].append(row["val_loss"])
    for found in rows.values():
        x = sorted(found)
        curves.append((np.array(x), np.array([np.mean(found[one]) for one in x])))
    truths = []
    for x, y in curves:
        spline = make_smoothing_spline(x, y, lam=_SMOOTHING)
        grid = np.linspace(x[0], x[-1], 4001)
        best = float(grid[int(np.argmin(spline(grid)))])
        truths.append(Truth(x[0], x[-1], spline, lambda _: _DEVIATION, best))
    return truths


def cliff_truth(luck: Generator, level: float = 1.0) -> Truth:
    """Steep below the best rate, flat above it, then a cliff, towards which seeds differ by more."""
    best, cliff = luck.uniform(-2.5, -1.5), luck.uniform(0.15, 0.9)
    steep = luck.uniform(0.15, 0.5)
    flat = steep * luck.uniform(0.05, 0.3)

    def loss(at: Any) -> Any:
        off = 1.2 * (np.asarray(at) - best)
        return 3 + np.where(off < 0, steep * (np.exp(-off) - 1 + off), flat * (np.exp(off) - 1 - off))

    def deviation(at: float) -> float:
        return level * _DEVIATION * 3 ** min(1.0, max(-0.5, at - best))

    return Truth(best - 1.5, best + 1.25, loss, deviation, best, best + cliff)


def sweep(truth: Truth, step: float, seeds: int, luck: Generator, model: str = "32d") -> list[Run]:
    """Runs of one size at rates of this step in decades from a random first one."""
    runs = []
    for at in np.arange(truth.first + step * luck.random(), truth.last, step).tolist():
        for seed in range(seeds):
            off = luck.normal() if luck.random() < 0.7 else luck.exponential()  # some seeds end high
            loss = float(truth.loss(at)) + truth.deviation(at) * off
            if at > truth.cliff:
                loss = math.nan if luck.random() < 0.6 else loss + _LIES_HIGH + 1.5 * luck.random()
            values = {"model": model, "lr": 10**at, "val_loss": loss}
            runs.append(Run(f"{model}-{at:.3f}-{seed}", Path(), "done", None, values))
    return runs


def made_sweeps(kind: str, step: float, seeds: int, count: int) -> Iterator[tuple[list[Size], list[Truth]]]:
    """Studies with the truth of each size; `count` sweeps in all, the same at each call.

    Args:
        kind: `real` curves or `cliff`, of one size; `four sizes`, with cliffs, whose noise is 0.5 to 2 times.
        step: of the rates, in decades.
    """
    luck = np.random.default_rng([len(kind), round(100 * step), seeds])
    levels = (0.5, 1.0, 1.5, 2.0) if kind == "four sizes" else (1.0,)
    known = real_truths() if kind == "real" else []
    for number in range(count // len(levels)):
        truths = [known[number % len(known)]] if known else [cliff_truth(luck, level) for level in levels]
        runs = [
            run
            for place, truth in enumerate(truths)
            for run in sweep(truth, step, seeds, luck, f"{place + 1}d")
        ]
        yield sizes_of(runs, "lr", "val_loss"), truths


def noise(kind: str, place: Array, luck: Generator) -> Array:
    """Noise in nats of runs at places 0 to 1 of a study.

    Args:
        kind: `even`, `small noisier` or `large noisier`, ten times over the study; with `, skewed` that of a
            shifted exponential: most runs end a little low, a few far too high.
    """
    size = {"even": 0 * place, "small noisier": -place, "large noisier": place - 1}[kind.partition(",")[0]]
    off = luck.exponential(size=len(place)) - 1 if "skewed" in kind else luck.normal(size=len(place))
    found: Array = 2 * _DEVIATION * 10.0**size * off if "noisier" in kind else _DEVIATION * off
    return found
