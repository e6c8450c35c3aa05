"""Runs that differ by nothing but a seed and a learning rate, and where the best rate of each such lies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.columns import cell, varying_columns
from analysis.reading import Run, Study

if TYPE_CHECKING:
    from analysis.rates.best import Best, Noise
    from analysis.rates.grid import Size
    from analysis.rates.law import RateLaw

SEEDS = ("seed", "seed_init", "seed_data")
RATES = ("lr", "log10_lr", "optimizer.lr")
_LEAST_RATES = 3
DRAWS = 300
"""For the interval of a best rate: fewer than `best-lr` takes, so that the page is there in seconds."""


@dataclass(frozen=True)
class Family:
    """label: what tells it from other families, `64d`. best: None where fewer than three rates were tried."""

    label: str
    size: Size
    best: Best | None


@dataclass(frozen=True)
class Families:
    """Of a study, in the order of their size. noise: of one run's loss. law: of the best rates over width."""

    each: list[Family]
    noise: Noise | None
    law: RateLaw | None

    @property
    def with_rates(self) -> list[Family]:
        return [family for family in self.each if family.best is not None]


def families(study: Study, y: str) -> Families:
    """Each run counted once; those that died count nowhere, those that diverged belong to their rate."""
    from analysis.rates.best import best_of, noise_of
    from analysis.rates.grid import sizes_of

    names = _distinguishing(study)
    groups: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in study.once():
        if (run.number("lr") or 0.0) > 0 and (run.counts or run.has_diverged):
            groups[tuple(cell(name, run.value(name)) for name in names)].append(run)
    found = [
        (_label(names, key, runs[0]), size)
        for key, runs in groups.items()
        for size in sizes_of(runs, "lr", y)
    ]
    found.sort(key=lambda one: (one[1].width or 0.0, one[0]))
    noise = noise_of([size for _, size in found])
    each = [
        Family(
            label + (f" at {size.budget}" if size.budget else ""),
            size,
            best_of(size, noise, draws=DRAWS) if len(size.rates) >= _LEAST_RATES else None,
        )
        for label, size in found
    ]
    bests = [family.best for family in each if family.best is not None]
    return Families(each, noise, _law(bests) if "model" in names or not study.is_ours else None)


def _law(bests: Sequence[Best]) -> RateLaw | None:
    from analysis.rates.law import LEAST_SIZES, rate_law

    if sum(best.is_inside for best in bests) < LEAST_SIZES:
        return None
    return rate_law(bests)


def _distinguishing(study: Study) -> list[str]:
    names = varying_columns(study.runs) if study.is_ours else sorted(study.named_facts)
    return [name for name in names if name not in (*SEEDS, *RATES)]


def _label(names: Sequence[str], key: Sequence[str], run: Run) -> str:
    if not names:
        return str(run.value("model") or "all runs")
    return ", ".join(
        told if name == "model" else f"{name.rpartition('.')[2]} {told}"
        for name, told in zip(names, key, strict=True)
    )
