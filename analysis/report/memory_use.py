"""High water by run against limit and estimate: how near they came, and what was asked for and not used."""

from __future__ import annotations

import shlex
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.reading import Run, Study
from analysis.report.plot import Axis, Line, Plot, Series
from memory.format import format_bytes
from memory.report.page import Cell, Column, Page

_NEAR = 0.9
_LIMIT_IN_SIGHT = 4.0


@dataclass(frozen=True)
class Use:
    """Of one run, bytes. peak: the highest unreclaimable memory that its supervisor saw."""

    run: Run
    peak: float
    limit: float | None
    estimate: float | None

    @property
    def share(self) -> float | None:
        return self.peak / self.limit if self.limit else None


def uses(study: Study) -> list[Use]:
    """Of the runs whose supervisor told it. What only the host limits has no limit here."""
    found = []
    for run in study.runs:
        peak = run.number("peak_bytes")
        if peak:
            limit = None if run.value("limit_at") == "host" else run.number("limit_bytes")
            found.append(Use(run, peak, limit, run.number("estimate_bytes")))
    return found


def add_memory(page: Page, found: Sequence[Use], given: str) -> None:
    """Nothing where no supervisor told it. given: the study, as it is typed."""
    if not found:
        return
    page.heading(
        "Memory", "unreclaimable memory at its highest, which an OOM kill looks at; of the last attempt"
    )
    page.drawn("plotted", memory_plot(found).to_json())
    by_size: dict[str, list[Use]] = defaultdict(list)
    for use in sorted(found, key=lambda use: use.run.number("parameters") or 0):
        by_size[str(use.run.value("model") or "-")].append(use)
    page.table(
        [Column("size"), Column("runs", True), Column("highest", True), Column("estimate", True),
         Column("measured / estimate", True), Column("limit", True), Column("of the limit", True),
         Column("run")],
        [_row(size, group) for size, group in by_size.items()],
    )  # fmt: skip
    folder = shlex.quote(str(highest(found).run.folder))
    page.code(f"python -m analysis memory {given}\npython -m memory report {folder} --html")


def highest(found: Sequence[Use]) -> Use:
    """The nearest to its limit, else the highest."""
    return max(found, key=lambda use: (use.share or 0.0, use.peak))


def memory_plot(found: Sequence[Use]) -> Plot:
    """Over the size where it varies, else one after the other."""
    sizes = [use.run.number("parameters") for use in found]
    over_size = all(sizes) and len(set(sizes)) > 1
    x = [float(size or 0) for size in sizes] if over_size else [float(i) for i in range(1, len(found) + 1)]
    died = [i for i, use in enumerate(found) if use.run.state == "oom"]
    series = [
        Series("measured", x, [use.peak for use in found], "points", "blue", "measured",
               notes=[use.run.name for use in found]),
    ]  # fmt: skip
    if died:
        series.append(
            Series("killed for memory", [x[i] for i in died], [found[i].peak for i in died], "points", "red",
                   "killed for memory", notes=[found[i].run.name for i in died])
        )  # fmt: skip
    told = [i for i, use in enumerate(found) if use.estimate]
    if told:
        series.append(
            Series("estimate", [x[i] for i in told], [found[i].estimate for i in told], "rings", "orange",
                   "estimate", notes=[found[i].run.name for i in told])
        )  # fmt: skip
    top = max(use.peak for use in found)
    limits = sorted({use.limit for use in found if use.limit and use.limit <= _LIMIT_IN_SIGHT * top})
    lines = [Line("y", limit, f"limit {format_bytes(limit)}", color="red") for limit in limits[:4]]
    axis = Axis("parameters", "count", log=True) if over_size else Axis("run, in the order of the table")
    return Plot(
        "highest unreclaimable memory of each run", axis, Axis("memory", "bytes", from_zero=True), series,
        lines, height=280,
    )  # fmt: skip


def _row(size: str, group: Sequence[Use]) -> list[str | Cell]:
    most = max(group, key=lambda use: use.peak)
    estimates = [use.estimate for use in group if use.estimate]
    ratios = [use.peak / use.estimate for use in group if use.estimate]
    limits = [use.limit for use in group if use.limit]
    share = max((use.share for use in group if use.share is not None), default=None)
    ratio = statistics.median(ratios) if ratios else None
    return [
        Cell(size, size),
        Cell(str(len(group)), len(group)),
        Cell(format_bytes(most.peak), most.peak),
        Cell(format_bytes(max(estimates)) if estimates else "-", max(estimates, default=None)),
        Cell("-" if ratio is None else f"{ratio:.2f}", ratio),
        Cell(format_bytes(min(limits)) if limits else "-", min(limits, default=None)),
        Cell("-" if share is None else f"{100 * share:.0f}%", share, bar=share,
             tone="bad" if share is not None and share >= _NEAR else ""),
        most.run.name,
    ]  # fmt: skip
