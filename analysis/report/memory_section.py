"""Peak memory of each run next to its limit and estimate, and how much of the request was not used."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from analysis.memory_use import SizeMemory, Use, memory_by_size
from analysis.reading import Study
from experiment_utils.quantities import format_bytes
from experiment_utils.run_folder import RunFolder
from memory.estimate.efficiency import efficiency_line, efficiency_of_run
from memory.report.chart import Axis, Chart, Kind, LimitLine, Series
from memory.report.page import Cell, Column, Page

_NEAR = 0.9
_CAPTION = (
    "One point a run: the highest unreclaimable memory of its last attempt, which an OOM kill looks at, and "
    "the estimate made before it began."
)
_LIMIT_IN_SIGHT = 4.0


def add_memory(page: Page, study: Study, found: Sequence[Use], given: str) -> None:
    """Add the section; nothing if no run has a record. found: peaks of the runs. given: the runs as typed."""
    if not found:
        return
    page.heading("Memory")
    page.drawn("plotted", memory_chart(found).to_json(), caption=_CAPTION)
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
    """The run nearest to its limit, else that with the highest peak."""
    return max(found, key=lambda use: (use.share or 0.0, use.peak))


def memory_chart(found: Sequence[Use]) -> Chart:
    """Peaks over the size if it varies, else one after the other."""
    sizes = [use.run.number("parameters") for use in found]
    over_size = all(sizes) and len(set(sizes)) > 1
    x = [float(size or 0) for size in sizes] if over_size else [float(i) for i in range(1, len(found) + 1)]

    def series(
        name: str, places: Sequence[int], values: Sequence[int | None], color: str, kind: Kind
    ) -> Series:
        notes = [found[i].run.name for i in places]
        return Series(name, values, color, kind, x=[x[i] for i in places], notes=notes, group=name)

    died = [i for i, use in enumerate(found) if use.run.state == "oom"]
    estimated = [i for i, use in enumerate(found) if use.estimate]
    drawn = [series("measured", range(len(found)), [use.peak for use in found], "blue", "points")]
    if died:
        drawn.append(series("killed for memory", died, [found[i].peak for i in died], "red", "points"))
    if estimated:
        estimates = [found[i].estimate for i in estimated]
        drawn.append(series("estimate", estimated, estimates, "orange", "rings"))
    top = max(use.peak for use in found)
    limits = sorted({use.limit for use in found if use.limit and use.limit <= _LIMIT_IN_SIGHT * top})
    axis = (
        Axis("parameters", "count", scale="log")
        if over_size
        else Axis("place in the table", "number", scale="fit")
    )
    return Chart(
        "highest unreclaimable memory of each run", (), drawn, axis, Axis("memory", "bytes"),
        [LimitLine(limit, f"limit {format_bytes(limit)}") for limit in limits[:4]], height=280,
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
