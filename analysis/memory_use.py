"""Memory use by size: the peak and its stage, next to estimate and limit."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from analysis.reading.study import GOING_ON, Run
from experiment_utils.quantities import format_bytes
from experiment_utils.run_folder import RunFolder
from memory.report.data.stage_rows import stage_rows

_MARGIN = 1.15
"""Factor of the peak that the next job should request, as in plans (memory/estimate)."""
_UNIT = 256 << 20
_STAGES = 3


@dataclass(frozen=True)
class Use:
    """Memory of one run, in bytes.

    peak: what a job needs for it, the run's memory at its highest. limit: of a job; None if only the host
    limits: then the launcher, which a job would count, is added.
    """

    run: Run
    peak: int
    """The highest unreclaimable memory that its supervisor saw; without a job only that of the run."""
    limit: int | None
    """The limit of its job; None if only the host limits it."""
    estimate: int | None

    @property
    def share(self) -> float | None:
        """Peak as a share of the limit."""
        return self.peak / self.limit if self.limit else None


@dataclass(frozen=True)
class SizeMemory:
    """Runs of one size and batch. Amounts in bytes, None if unknown.

    name: of the size, with the batch where sizes of one model have several. runs: all; uses: of those whose
    supervisor recorded it. limit_bytes: the smallest.
    """

    name: str
    model: str
    batch_tokens: float | None
    runs: tuple[Run, ...]
    uses: tuple[Use, ...]
    estimate_bytes: int | None
    limit_bytes: int | None

    @property
    def highest(self) -> Use | None:
        return max(self.uses, key=lambda use: use.peak, default=None)

    @property
    def peak_bytes(self) -> int | None:
        return None if self.highest is None else self.highest.peak

    @property
    def least_peak_bytes(self) -> int | None:
        """The lowest peak of its runs."""
        return min((use.peak for use in self.uses), default=None)

    @property
    def asked_bytes(self) -> int | None:
        """Peak with a margin, rounded up: what the next job should ask for. None where no run has ended."""
        if self.peak_bytes is None or all(use.run.state in GOING_ON for use in self.uses):
            return None
        return -int(-self.peak_bytes * _MARGIN // _UNIT) * _UNIT

    @property
    def is_too_little(self) -> bool:
        """Whether the run with the peak was killed for it, so that its need is unknown."""
        return self.highest is not None and self.highest.run.state == "oom"

    @property
    def asked_words(self) -> str:
        """`512 MB`; `> 512 MB` where it is a lower bound."""
        amount = self.asked_bytes
        return "-" if amount is None else ("> " if self.is_too_little else "") + format_bytes(amount)

    @property
    def unused_bytes(self) -> int | None:
        """The part of the limit that no run needed."""
        if self.peak_bytes is None or self.limit_bytes is None:
            return None
        return self.limit_bytes - self.peak_bytes

    @property
    def share(self) -> float | None:
        """Share of its limit of the run that came nearest to it."""
        return max((use.share for use in self.uses if use.share is not None), default=None)

    @property
    def of_estimate(self) -> float | None:
        """Measured by estimated: the median."""
        ratios = [use.peak / use.estimate for use in self.uses if use.estimate]
        return statistics.median(ratios) if ratios else None

    @cached_property
    def stages(self) -> tuple[tuple[str, int | None], ...]:
        """(name, highest U in it) of the run with the peak, the highest first; None: U is not its own."""
        if self.highest is None:
            return ()
        found = _stages(self.highest.run)
        return found if self.highest.limit else tuple((name, None) for name, _ in found)


def uses(runs: Sequence[Run]) -> list[Use]:
    """Memory use of the runs whose supervisor recorded it."""
    found = []
    for run in runs:
        peak, limit = _bytes(run, "peak_bytes"), _limit(run)
        is_own = limit is None and run.value("own_bytes") is not None
        launcher = _bytes(run, "launcher_bytes") or 0 if is_own else 0
        if peak:
            found.append(Use(run, peak + launcher, limit, _bytes(run, "estimate_bytes")))
    return found


def memory_by_size(runs: Sequence[Run]) -> list[SizeMemory]:
    """In order of their high-water marks, runs that tell nothing first."""
    groups: dict[tuple[str, Any], list[Run]] = defaultdict(list)
    batches_of: dict[str, set[Any]] = defaultdict(set)
    for run in runs:
        if (batch := run.value("batch_tokens")) is not None:
            batches_of[_model(run)].add(batch)
    for run in runs:
        model, batch = _model(run), run.value("batch_tokens")
        if batch is None and len(batches_of[model]) == 1:  # of a run that has not been planned yet
            batch = next(iter(batches_of[model]))
        groups[model, batch].append(run)
    batches = Counter(model for model, _ in groups)
    found = [
        SizeMemory(
            f"{model}, {batch:,} tokens a step" if batches[model] > 1 and batch else model,
            model, batch, tuple(members), tuple(uses(members)),
            estimate_bytes=max(_known(_bytes(run, "estimate_bytes") for run in members), default=None),
            limit_bytes=min(_known(map(_limit, members)), default=None),
        )
        for (model, batch), members in groups.items()
    ]  # fmt: skip
    return sorted(found, key=lambda size: size.peak_bytes or 0)


def _model(run: Run) -> str:
    """Row of a run whose configuration cannot be read: its state."""
    return str(run.value("model") or run.state or "-")


def _limit(run: Run) -> int | None:
    return None if run.value("limit_at") == "host" else _bytes(run, "limit_bytes")


def _bytes(run: Run, column: str) -> int | None:
    value = run.number(column)
    return None if value is None or not math.isfinite(value) else int(value)


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _stages(run: Run) -> tuple[tuple[str, int], ...]:
    rows = stage_rows(RunFolder(run.folder).last_stage_records)
    known = [(row.name, row.highest_bytes) for row in rows if row.highest_bytes is not None and not row.depth]
    return tuple(sorted(known, key=lambda one: -one[1])[:_STAGES])
