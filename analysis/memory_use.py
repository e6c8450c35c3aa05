"""What runs of each size took of memory: the high-water mark and its stage, against estimate and limit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.reading.study import Run
from analysis.run_folder import RunFolder
from memory.report.stages import stage_rows

_MARGIN = 1.15
"""Of the high-water mark, what the next job should ask for: as plans have it (memory/estimate.py)."""
_UNIT = 256 << 20
_STAGES = 3


@dataclass(frozen=True)
class SizeMemory:
    """Runs of one size and batch. Amounts in bytes, None where nobody told.

    peak_bytes: the highest U of any of them; least_peak_bytes: of the run with the lowest. limit_bytes: the
    smallest, of a job; None where only the host limits. asked_bytes: peak with a margin, rounded up.
    stages: (name, highest U in it) of the run with the peak, the highest first.
    """

    model: str
    batch_tokens: float | None
    runs: tuple[Run, ...]
    peak_bytes: int | None
    least_peak_bytes: int | None
    estimate_bytes: int | None
    limit_bytes: int | None
    stages: tuple[tuple[str, int], ...]

    @property
    def asked_bytes(self) -> int | None:
        return None if self.peak_bytes is None else -int(-self.peak_bytes * _MARGIN // _UNIT) * _UNIT

    @property
    def unused_bytes(self) -> int | None:
        """Of the limit, what no run ever needed."""
        if self.peak_bytes is None or self.limit_bytes is None:
            return None
        return self.limit_bytes - self.peak_bytes


def memory_by_size(runs: Sequence[Run]) -> list[SizeMemory]:
    """In order of their high-water marks, runs that tell nothing last."""
    groups: dict[tuple[str, Any], list[Run]] = defaultdict(list)
    for run in runs:
        groups[str(run.value("model")), run.value("batch_tokens")].append(run)
    found = [_of_size(model, batch, members) for (model, batch), members in groups.items()]
    return sorted(found, key=lambda size: size.peak_bytes or 0)


def _of_size(model: str, batch: Any, runs: Sequence[Run]) -> SizeMemory:
    known = [run for run in runs if run.number("peak_bytes") is not None]
    highest = max(known, key=lambda run: run.number("peak_bytes") or 0.0, default=None)
    limits = [
        int(run.values["limit_bytes"])
        for run in runs
        if run.number("limit_bytes") is not None and run.value("limit_at") != "host"
    ]
    estimates = [
        int(run.values["estimate_bytes"]) for run in runs if run.number("estimate_bytes") is not None
    ]
    return SizeMemory(
        model, batch, tuple(runs),
        peak_bytes=int(highest.values["peak_bytes"]) if highest else None,
        least_peak_bytes=min((int(run.values["peak_bytes"]) for run in known), default=None),
        estimate_bytes=max(estimates, default=None),
        limit_bytes=min(limits, default=None),
        stages=_stages(highest) if highest else (),
    )  # fmt: skip


def _stages(run: Run) -> tuple[tuple[str, int], ...]:
    rows = stage_rows(RunFolder(run.folder).last_attempt_memory)
    known = [(row.name, row.highest_bytes) for row in rows if row.highest_bytes is not None and not row.depth]
    return tuple(sorted(known, key=lambda one: -one[1])[:_STAGES])
