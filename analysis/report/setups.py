"""Runs that differ by nothing but a seed, and those by nothing but a seed and a learning rate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from analysis.columns import cell, varying_columns
from analysis.reading import Run, Study

SEEDS = ("seed", "seed_init", "seed_data")
RATES = ("lr", "log10_lr", "optimizer.lr")


@dataclass(frozen=True)
class Rate:
    """Runs of one learning rate. losses: of those that came to their end, finite. lost: how many diverged."""

    lr: float
    runs: list[Run]
    losses: list[float]
    lost: int

    @property
    def mean(self) -> float:
        """nan where no run of it came to its end."""
        return sum(self.losses) / len(self.losses) if self.losses else math.nan


@dataclass(frozen=True)
class Family:
    """Runs of one setup, by learning rate. label: what tells it from other families, `64d`."""

    label: str
    rates: list[Rate]

    @cached_property
    def best(self) -> Rate | None:
        """Of the lowest mean loss; where seeds are lost half the time or more it is not trusted."""
        whole = [rate for rate in self.rates if rate.losses and len(rate.losses) > rate.lost]
        return min(whole, key=lambda rate: rate.mean, default=None)

    @property
    def is_at_edge(self) -> bool:
        """Whether the lowest is the first or last rate that gave a loss at all."""
        return self.best is not None and self.best in (self.rates[0], self.rates[-1])


def families(study: Study, y: str) -> list[Family]:
    """Those that have a learning rate, each run counted once, in the order of their size."""
    names = _distinguishing(study)
    groups: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in study.once():
        if run.number("lr") is not None and (run.number("lr") or 0) > 0:
            groups[tuple(_told(run, name) for name in names)].append(run)
    ordered = sorted(groups.items(), key=lambda item: (_size(item[1][0]), item[0]))
    return [Family(_label(names, key, study), _rates(runs, y)) for key, runs in ordered]


def seed_spread(found: Sequence[Family]) -> tuple[float, int] | None:
    """(standard deviation of the loss over seeds, pooled; how many setups it is of); None without seeds."""
    squares, freedom, setups = 0.0, 0, 0
    for family in found:
        for rate in family.rates:
            if len(rate.losses) > 1:
                squares += sum((loss - rate.mean) ** 2 for loss in rate.losses)
                freedom += len(rate.losses) - 1
                setups += 1
    return (math.sqrt(squares / freedom), setups) if freedom else None


def _distinguishing(study: Study) -> list[str]:
    names = varying_columns(study.runs) if study.is_ours else sorted(study.named_facts)
    return [name for name in names if name not in (*SEEDS, *RATES)]


def _rates(runs: Sequence[Run], y: str) -> list[Rate]:
    by_rate: dict[float, list[Run]] = defaultdict(list)
    for run in runs:
        by_rate[float(f"{run.number('lr') or 0.0:.6g}")].append(run)
    return [_rate(lr, by_rate[lr], y) for lr in sorted(by_rate)]


def _rate(lr: float, runs: list[Run], y: str) -> Rate:
    found = [run.number(y) for run in runs if run.counts]
    losses = [loss for loss in found if loss is not None and math.isfinite(loss)]
    return Rate(lr, runs, losses, sum(map(_is_lost, runs)) + len([1 for loss in found if loss != loss]))


def _is_lost(run: Run) -> bool:
    return run.has_diverged


def _label(names: Sequence[str], key: Sequence[str], study: Study) -> str:
    if not names:
        return str(study.runs[0].value("model") or "all runs")
    return ", ".join(
        told if name == "model" else f"{name.rpartition('.')[2]} {told}"
        for name, told in zip(names, key, strict=True)
    )


def _told(run: Run, name: str) -> str:
    return cell(name, run.value(name))


def _size(run: Run) -> float:
    for name in ("parameters", "d_model"):
        if (found := run.number(name)) is not None:
            return found
    digits = "".join(c for c in str(run.value("model") or "") if c.isdigit())
    return float(digits) if digits else 0.0
