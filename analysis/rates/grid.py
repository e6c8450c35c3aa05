"""Runs as losses by learning rate, size by size."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.fits.parabola import round_minimum, vertex
from analysis.reading.study import Run
from analysis.setups import setup_of
from experiment_utils.quantities import format_count

Array = np.ndarray[Any, np.dtype[np.float64]]
_SAME_RATE = 5e-3
"""Relative: rates that differ by rounding to three digits are one."""
_CLIFF_FACTOR = 2.0
_CLIFF_LEAST = 0.1
"""Nats above the parabola of its neighbours from which a rate, if also twice as high, has half diverged."""


@dataclass(frozen=True)
class Rate:
    """losses: of the runs at this rate that count, by seed. lost: names of those that diverged."""

    lr: float
    losses: tuple[float, ...]
    lost: tuple[str, ...] = ()
    half: bool = False

    @property
    def mean(self) -> float:
        return float(np.mean(self.losses))

    @property
    def has_diverged(self) -> bool:
        return self.half or (not self.losses and bool(self.lost))

    @property
    def how_far(self) -> str:
        """Behind a rate that diverged: nothing where all of its runs did so whole."""
        if self.half:
            return " (half)"
        if not (self.lost and self.losses):
            return ""
        return f" ({len(self.lost)} of {len(self.lost) + len(self.losses)} runs)"


@dataclass(frozen=True)
class Size:
    """model: its name. width: None where it is not known. rates: by ascending lr, of whatever came of them.
    budget: what its runs read, where sizes of one name have several. setup: what else sets its runs apart
    from others of that name, `muon`. pending: rates of runs that wait, go on, or died.
    """

    model: str
    width: float | None
    rates: tuple[Rate, ...]
    runs: tuple[Run, ...]
    budget: str = ""
    setup: str = ""
    pending: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        setup = f", {self.setup}" if self.setup else ""
        return f"{self.model}{setup}{f' at {self.budget}' if self.budget else ''}"

    @property
    def good(self) -> list[Rate]:
        """Rates with a loss that belongs to the curve."""
        return [rate for rate in self.rates if rate.losses and not rate.half]

    @property
    def diverged_at(self) -> list[str]:
        """Rates at which runs were lost, in words: `0.1`, `0.0562 (half)`, `0.03 (1 of 3 runs)`."""
        return [f"{rate.lr:.3g}{rate.how_far}" for rate in self.rates if rate.lost or rate.half]

    @property
    def x(self) -> Array:
        """log10 of the good rates."""
        return np.log10([rate.lr for rate in self.good])

    @property
    def y(self) -> Array:
        return np.array([rate.mean for rate in self.good])


def sizes_of(
    runs: Sequence[Run],
    lr: str,
    y: str,
    *,
    model: str = "model",
    budget: str = "budget_tokens",
    apart: Sequence[str] = (),
    pending: Sequence[Run] = (),
) -> list[Size]:
    """Sizes in ascending width, each with its rates. lr, y, model, budget: columns.

    runs: also those that diverged, which belong to their rate; not those that died otherwise, nor those that
    wait or go on: they are `pending`. apart: columns in which runs of one size are no seeds of each other.
    """
    groups: dict[tuple[str, str, Any], list[Run]] = defaultdict(list)
    for run in runs:
        groups[(*_name(run, model, apart), _rounded(run.number(budget)))].append(run)
    names = [(name, setup) for name, setup, _ in groups]
    absent: dict[tuple[str, str], set[float]] = defaultdict(set)
    for run in pending:
        absent[_name(run, model, apart)].add(run.number(lr) or 0.0)
    found = []
    for (name, setup, tokens), members in groups.items():
        shown = format_count(tokens) + " tokens" if names.count((name, setup)) > 1 and tokens else ""
        found.append(
            Size(
                name,
                width_of(members[0], name),
                _without_cliff(_rates(members, lr, y)),
                tuple(members),
                shown,
                setup,
                tuple(sorted(rate for rate in absent[name, setup] if rate > 0)),
            )
        )
    return sorted(found, key=lambda size: (size.width is None, size.width or 0.0, size.name))


def _name(run: Run, model: str, apart: Sequence[str]) -> tuple[str, str]:
    return str(run.value(model) or "all"), setup_of(run, apart)


def width_of(run: Run, name: str) -> float | None:
    """`d_model`, or the number in a name such as `64d`."""
    recorded = run.number("d_model")
    if recorded is not None:
        return recorded
    digits = name.lower().removesuffix("d").removeprefix("d")
    return float(digits) if digits.replace(".", "", 1).isdigit() else None


def is_same_rate(one: float, other: float) -> bool:
    """Whether two rates differ by rounding alone: 0.0003453 and 0.000345."""
    return math.isclose(one, other, rel_tol=_SAME_RATE)


def _rates(runs: Sequence[Run], lr: str, y: str) -> list[Rate]:
    losses: dict[float, list[float]] = defaultdict(list)
    lost: dict[float, list[str]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.number(lr) or 0.0):
        here = run.number(lr) or 0.0
        same = next((known for known in (*losses, *lost) if is_same_rate(known, here)), here)
        loss = run.number(y)
        if run.has_diverged or (loss is not None and not math.isfinite(loss)):
            lost[same].append(run.name)
        elif loss is not None:  # a blank is no loss, and no divergence either
            losses[same].append(loss)
    return [Rate(one, tuple(losses[one]), tuple(lost[one])) for one in sorted({*losses, *lost})]


def _without_cliff(rates: Sequence[Rate]) -> tuple[Rate, ...]:
    """Marks rates above the best whose runs ended far above what the parabola of those below predicts."""
    good = [rate for rate in rates if rate.losses]
    marked: set[float] = set()
    while len(good) > 3:
        x, y = np.log10([rate.lr for rate in good]), np.array([rate.mean for rate in good])
        if int(np.argmin(y)) >= len(good) - 1:
            break
        below = slice(0, len(good) - 1)
        near = round_minimum(y[below], 2)
        if vertex(x[near], y[near]) is None:
            break
        predicted = float(np.polyval(np.polyfit(x[near], y[near], 2), x[-1]))
        rise, expected = y[-1] - y.min(), predicted - y.min()
        if not (rise > _CLIFF_FACTOR * expected and y[-1] - predicted > _CLIFF_LEAST):
            break
        marked.add(good.pop().lr)
    return tuple(Rate(rate.lr, rate.losses, rate.lost, half=rate.lr in marked) for rate in rates)


def _rounded(tokens: float | None) -> float | None:
    """Budgets that differ by the last step of a batch are one."""
    return None if tokens is None else float(f"{tokens:.2g}")
