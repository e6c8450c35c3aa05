"""High water by run against limit and estimate: how near they came, and what was asked for and not used."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from analysis.memory_use import SizeMemory, Use, memory_by_size
from analysis.reading import Study
from analysis.report.plot import Axis, Line, Plot, Series
from experiment_utils.quantities import format_bytes
from experiment_utils.run_folder import RunFolder
from memory.estimate.efficiency import efficiency_line, efficiency_of_run
from memory.report.page import Cell, Column, Page

_NEAR = 0.9
_LIMIT_IN_SIGHT = 4.0


def add_memory(page: Page, study: Study, found: Sequence[Use], given: str) -> None:
    """Nothing where no supervisor told it. found: of the runs of the study. given: as they are typed."""
    if not found:
        return
    page.heading(
        "Memory", "unreclaimable memory at its highest, which an OOM kill looks at; of the last attempt"
    )
    page.drawn("plotted", memory_plot(found).to_json())
    page.table(
        [Column("size"), Column("runs", True), Column("highest", True), Column("estimate", True),
         Column("measured / estimate", True), Column("limit", True), Column("of the limit", True),
         Column("ask for", True), Column("run with the highest")],
        [_row(size) for size in memory_by_size(study.runs) if size.uses],
    )  # fmt: skip
    done = [RunFolder(run.folder) for run in study.runs if run.is_ours and run.state == "done"]
    line = efficiency_line([one for run in done if (one := efficiency_of_run(run)) is not None])
    if line is not None:
        page.text(f"Efficiency of the runs that are done: {line}")
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


def _row(size: SizeMemory) -> list[str | Cell]:
    ratio, share, most = size.of_estimate, size.share, size.highest
    return [
        Cell(size.name, size.name),
        Cell(str(len(size.runs)), len(size.runs)),
        _amount(size.peak_bytes),
        _amount(size.estimate_bytes),
        Cell("-" if ratio is None else f"{ratio:.2f}", ratio),
        _amount(size.limit_bytes),
        Cell("-" if share is None else f"{100 * share:.0f}%", share, bar=share,
             tone="bad" if share is not None and share >= _NEAR else ""),
        Cell(size.asked_words, size.asked_bytes),
        "" if most is None else most.run.name,
    ]  # fmt: skip


def _amount(value: int | None) -> Cell:
    return Cell("-" if value is None else format_bytes(value), value)
