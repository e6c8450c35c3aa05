"""Runs that differ by nothing but a seed and a learning rate, and where the best rate of each such lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.reading import Run, Study
from analysis.setups import setup_columns

if TYPE_CHECKING:
    from analysis.rates.best import Best, Noise
    from analysis.rates.grid import Size
    from analysis.rates.law import RateLaw

_LEAST_RATES = 3


@dataclass(frozen=True)
class Family:
    """label: its name, `64d`. best: None if fewer than three rates were tried."""

    label: str
    size: Size
    best: Best | None


@dataclass(frozen=True)
class Families:
    """Families of a study, in the order of their size."""

    each: list[Family]
    noise: Noise | None
    """Noise of one run's loss."""
    laws: dict[str, RateLaw]
    """Setup -> law of the best rates over width."""

    @property
    def with_rates(self) -> list[Family]:
        return [family for family in self.each if family.best is not None]


def families(study: Study, y: str) -> Families:
    """Each run counted once; those that died lack at their rate, those that diverged belong to it."""
    from analysis.rates.best import best_of, noise_of
    from analysis.rates.grid import sizes_of
    from analysis.rates.law import rate_laws

    tried = [run for run in study.once() if (run.number("lr") or 0.0) > 0]
    runs, pending = _parted(tried)
    sizes = sizes_of(runs, "lr", y, apart=setup_columns(study, runs, "model", "lr"), pending=pending)
    noise = noise_of(sizes)
    each = [
        Family(
            "all runs" if size.model == "all" and not size.setup else size.name,
            size,
            best_of(size, noise) if len(size.rates) >= _LEAST_RATES else None,
        )
        for size in sizes
    ]
    return Families(each, noise, rate_laws([family.best for family in each if family.best is not None]))


def _parted(tried: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    runs = [run for run in tried if run.counts or run.has_diverged]
    used = {run.folder for run in runs}
    return runs, [run for run in tried if run.folder not in used]
