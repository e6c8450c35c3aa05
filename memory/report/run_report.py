"""The report of a run's memory, as a page and as text: over time, by stage, by process, and its end."""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING

from experiment_utils.quantities import format_bytes
from experiment_utils.safe_read import read_plain_text
from memory.measure.gpu_activity import GpuActivity, MeanActivity
from memory.record.stage_line import duration, format_change
from memory.report.data.ending import ending, events
from memory.report.data.history import Attempt, History, Track
from memory.report.data.processes import process_rows
from memory.report.data.stage_rows import StageRow
from memory.report.drawing import charts_figure, own_style, png
from memory.report.page import Cell, Column, Fact, Page
from memory.report.plain_text import PlainText
from memory.report.run_charts import (
    PART_NAMES,
    by_process,
    by_rank,
    gpu_activity,
    gpu_over_time,
    over_time,
    track_name,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("memory")

ATTEMPTS, RANKS, PROCESSES = 5, 16, 64
"""Most earlier attempts, ranks and processes that a report shows."""
_PROCESSES_IN_TEXT = 10
_BLACK_BOXES, _BLACK_BOX_CHARACTERS = 4, 30_000
HOW_TO_READ = (
    "U, the unreclaimable memory (anon + shared + kernel), decides an OOM kill. Page cache is reclaimed when "
    "memory is short. The line below the plot shows the values at the cursor; a click on a name hides it. "
    "Drag or click a stage to zoom, double-click for all; arrow keys step."
)


def page_of(history: History, *, command: str) -> str:
    """The page. command: the one that wrote it, for the footer."""
    last = history.last
    end = ending(history, last)
    page = Page(
        history.name, subtitle=f"Memory: {_summary(history, last)}", tone="bad" if end.is_bad else "",
        footer=f"Written by {command}. Units are powers of 1024.",
    )  # fmt: skip
    page.facts(_facts(last))
    _add_why(page, history)
    _add_black_boxes(page, history)
    _add_attempt(page, history, last)
    earlier = history.attempts[:-1][-ATTEMPTS:]
    if earlier:
        page.heading("Earlier attempts")
        for attempt in reversed(earlier):
            with page.folded(f"Attempt {attempt.number}: {_summary(history, attempt)}"):
                _add_attempt(page, history, attempt)
    _add_notes(page, history)
    page.heading("Next")
    folder = shlex.quote(str(history.evidence.path))
    page.code(f"python -m memory explain {folder}\npython -m memory compare {folder} OTHER_RUN")
    return page.html()


def lines_of(history: History, attempt: Attempt | None = None) -> list[str]:
    """The report of an attempt, the last one by default, as lines of text."""
    attempt = history.last if attempt is None else attempt
    text = PlainText(f"{history.name}: {_summary(history, attempt)}")
    text.facts(_facts(attempt))
    _add_attempt(text, history, attempt)
    earlier = history.attempts[:-1] if attempt is history.last else []
    if earlier:
        text.heading("Earlier attempts")
        columns = [Column("attempt", True), Column("highest U", True), Column("ended")]
        highest = [a.main.highest for a in earlier]
        rows = [
            [str(a.number), amount(m.u if m else None), _summary(history, a)]
            for a, m in zip(earlier, highest, strict=True)
        ]
        text.table(columns, rows)
    _add_notes(text, history)
    return text.lines


def attempt_figure(history: History, attempt: Attempt) -> Figure:
    """The picture of an attempt: memory.png."""
    end, bad = ending(history, attempt), [one for one in events(history, attempt) if one.is_bad]
    chart, gpu = over_time(attempt.main, bad), gpu_over_time(attempt.main)
    number = f", attempt {attempt.number}" if attempt.number > 1 else ""
    title = f"{history.name}{number}" + (f"; {end.words}" if end.is_bad else "")
    return charts_figure([("", chart)] if gpu is None else [("", chart), ("", gpu)], title)


def pictures(history: History, attempt: Attempt) -> dict[str, bytes]:
    """File name -> PNG: the attempt, and by process and by rank if there are several."""
    processes, ranks = by_process(attempt.main), by_rank(attempt.tracks[:RANKS])
    with own_style():
        drawn = {"memory.png": attempt_figure(history, attempt)}
        if processes is not None:
            drawn["memory-processes.png"] = charts_figure([("", processes)], f"{history.name}, by process")
        if ranks:
            drawn["memory-ranks.png"] = charts_figure(ranks, f"{history.name}, by rank")
        return {name: png(figure) for name, figure in drawn.items()}


def amount(n: int | None) -> str:
    """`504 MB`; `-` if unknown."""
    return "-" if n is None else format_bytes(n)


def change(n: int | None) -> str:
    """`+35 MB`; `-` if unknown."""
    return "-" if n is None else format_change(n)


def _summary(history: History, attempt: Attempt) -> str:
    end = ending(history, attempt)
    number = f", attempt {attempt.number}" if len(history.attempts) > 1 or attempt.number > 1 else ""
    return f"{end.words}, {duration(attempt.lasted_s)}{number}"


def _facts(attempt: Attempt) -> list[Fact]:
    track = attempt.fullest
    highest, limit = track.highest, track.limit_bytes
    found: list[Fact] = []
    if track.limit_at == "host" and attempt.own_bytes is not None:  # else it is the highest U
        of_host = f", {100 * attempt.own_bytes / limit:.0f}% of {format_bytes(limit)}" if limit else ""
        note = f"of its own processes{of_host}"
        found.append(Fact("run's memory", f"at most {format_bytes(attempt.own_bytes)}", note))
    if highest is None or highest.u is None:
        found.append(Fact("highest U", "unknown", "this system reports resident memory only"))
    else:
        stage = track.stage_at(highest.at_s)
        share = highest.u / limit if limit else None
        of = [] if share is None else [f"{100 * share:.0f}% of {format_bytes(limit or 0)}"]
        where = f"after {duration(highest.at_s)}" + (f" in {stage}" if stage else "")
        rank = [track_name(track)] if len(attempt.tracks) > 1 else []
        is_near = share is not None and share >= 0.9
        by = ["by peak rss less mapped files"] if highest.is_by_rss else []
        note = ", ".join([*of, where, *rank, *by])
        found.append(Fact("highest U", format_bytes(highest.u), note, share, "bad" if is_near else ""))
        parts = {name: n for part, name in PART_NAMES.items() if (n := getattr(highest, part))}
        first, *rest = sorted(parts, key=lambda name: -parts[name]) or [""]
        note = ", ".join([first, *(f"{name} {format_bytes(parts[name])}" for name in rest)])
        found.append(Fact("most of it", format_bytes(parts.get(first, 0)), note))
    if limit:
        at = track.limit_at or ""
        short = at if len(at) <= 24 else f"…/{at.rstrip('/').rpartition('/')[2][-24:]}"
        found.append(Fact("limit", format_bytes(limit), "memory of the host" if at == "host" else short))
    for name, label, note in (("cache", "page cache, at most", "no danger"), ("gpu", "GPU, at most", "")):
        most = max((getattr(m, name) or 0 for t in attempt.tracks for m in t.moments), default=0)
        found += [Fact(label, format_bytes(most), note)] if most else []
    busy, watts = _mean_activity(attempt)
    if busy is not None:
        found.append(Fact("GPU busy", f"{busy:.0f}%", "" if watts is None else f"{watts:.0f} W"))
    return [*found, Fact("time", duration(attempt.lasted_s))]


def _mean_activity(attempt: Attempt) -> tuple[float | None, float | None]:
    """Means over time: percent in which its GPU was busy, and watts."""
    mean = MeanActivity()
    for moment in attempt.main.moments:
        if moment.is_sample:
            power = None if moment.gpu_watts is None else round(1000 * moment.gpu_watts)
            mean.add(moment.at_s, GpuActivity(moment.gpu_busy, power))
    busy, power_mw = mean.means
    return busy, None if power_mw is None else power_mw / 1000


def _add_attempt(view: Page | PlainText, history: History, attempt: Attempt) -> None:
    track, is_page, group = attempt.main, isinstance(view, Page), f"attempt{attempt.number}"
    sources = {"sample": track.samples, "stage record": track.records}
    counts = [f"{n:,} {name}{'s' * (n != 1)}" for name, n in sources.items() if n]
    view.heading("Over time", " and ".join(counts))
    caption = HOW_TO_READ if attempt is history.last else ""
    view.figure(over_time(track, events(history, attempt), group=group), caption=caption)
    gpu = gpu_over_time(track, group=group)
    activity = gpu_activity(track, group=group)
    if gpu is not None or activity:
        view.heading("GPU")
        for one in (*([] if gpu is None else [gpu]), *activity):
            view.figure(one)
    ranks = by_rank(attempt.tracks[:RANKS], group=group)
    if ranks:
        view.heading("By rank", "one time axis and one scale")
        view.figures(ranks)
    view.heading("By stage")
    for shown in attempt.tracks[:RANKS]:
        if shown.rows:
            _add_stages(view, shown, track_name(shown) if len(attempt.tracks) > 1 else "")
    if not any(shown.rows for shown in attempt.tracks):
        view.text("No stages were recorded: only a supervisor sampled the run.", "note")
    if process_rows(track.moments):
        view.heading("By process", "anon; pages shared since a fork count in each")
        chart = by_process(track, group=group)
        if chart is not None and is_page:
            view.figure(chart)
        _add_processes(view, track, PROCESSES if is_page else _PROCESSES_IN_TEXT)


def _add_stages(view: Page | PlainText, track: Track, caption: str) -> None:
    most = max((row.highest_bytes or 0 for row in track.rows), default=0) or 1
    has_gpu = any(row.gpu_peak_bytes is not None for row in track.rows)
    columns = [
        Column("stage"), Column("times", True), Column("seconds", True),
        Column("U before", True, only_page=True), Column("highest", True), Column("after", True),
        Column("change", True),
        Column("anon change", True, only_page=True), Column("peak rss", True),
        *([Column("GPU peak", True)] if has_gpu else []), Column(""),
    ]  # fmt: skip
    rows: list[list[str | Cell]] = [
        [
            Cell(row.name + (f" ({row.thread})" if row.thread else ""), row.name, indent=row.depth),
            Cell(f"{row.times:,}", row.times),
            Cell(f"{row.seconds:.2f}" if row.seconds or row.ended else "-", row.seconds),
            _cell(row.before_bytes),
            _cell(row.highest_bytes, bar=None if row.highest_bytes is None else row.highest_bytes / most),
            _cell(row.unreclaimable_bytes),
            Cell(change(row.change_bytes), row.change_bytes),
            Cell(change(row.anon_change_bytes), row.anon_change_bytes),
            _cell(row.peak_rss_bytes),
            *([_cell(row.gpu_peak_bytes)] if has_gpu else []),
            Cell(_stage_end(row), tone="bad"),
        ]
        for row in track.rows
    ]
    view.table(columns, rows, caption=caption)


def _stage_end(row: StageRow) -> str:
    """Empty if it ended well."""
    if not row.ended:
        return "no end"
    return "" if row.error is None else row.error.partition(":")[0][:60]


def _add_processes(view: Page | PlainText, track: Track, most: int) -> None:
    found = process_rows(track.moments)
    highest = max(row.highest_bytes for row in found) or 1
    titles = ("pid", "at first", "highest", "at last", "change")
    columns = [Column("process"), *(Column(title, True) for title in titles)]
    columns += [Column(title, True, only_page=True) for title in ("seen from", "to")]
    rows: list[list[str | Cell]] = [
        [
            Cell(row.name + " (main)" * row.is_main, row.name), Cell(str(row.pid), row.pid),
            _cell(row.first_bytes), _cell(row.highest_bytes, bar=row.highest_bytes / highest),
            _cell(row.last_bytes), Cell(change(row.grown_bytes), row.grown_bytes),
            Cell(duration(row.first_s), row.first_s), Cell(duration(row.last_s), row.last_s),
        ]
        for row in found[:most]
    ]  # fmt: skip
    view.table(columns, rows)
    if len(found) > most:
        view.text(f"and {len(found) - most} more", "note")


def _cell(n: int | None, bar: float | None = None) -> Cell:
    return Cell(amount(n), n, bar)


def _add_why(page: Page, history: History) -> None:
    """The explanation of its end, if there is one. A page comes even if explaining fails."""
    from memory.explain import explain

    try:
        found = explain(history.evidence)
    except Exception as error:
        log.warning("%s cannot be explained: %s: %s", history.name, type(error).__name__, error)
        return
    if found.verdict in ("healthy", "unknown") and not found.near_limit:
        return
    sure = found.confidence if found.cause_confidence is None else found.cause_confidence
    page.heading("Why", "cause unknown" if sure == "unknown" else sure)
    page.text(found.sentence, "" if found.verdict == "healthy" else "bad")
    if found.advice:
        page.text("Changes, the cheapest first:")
        for number, one in enumerate(found.advice, 1):
            page.text(f"{number}. {one.text}" + ":" * (one.override is not None))
            if one.override is not None:
                page.code(one.override)
    if found.evidence or found.doubts:
        with page.folded("Evidence"):
            page.items([*found.evidence, *(f"against it: {doubt}" for doubt in found.doubts)])


def _add_black_boxes(page: Page, history: History) -> None:
    """Python stacks and largest tensors that were recorded when U came near the limit."""
    for path in history.evidence.black_boxes[-_BLACK_BOXES:]:
        try:
            content = read_plain_text(path)
        except OSError as error:
            history.notes.append(f"{path.name} cannot be read: {error.strerror}")
            continue
        with page.folded(f"Near the limit: {path.name}"):
            page.code(content[:_BLACK_BOX_CHARACTERS])


def _add_notes(view: Page | PlainText, history: History) -> None:
    if history.notes:
        view.heading("Notes")
        view.items(history.notes)
