"""The page of a run's memory: how close it came, over time, by stage, by process, by rank, by attempt."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from experiment_utils.quantities import format_bytes
from memory.record.stage_line import duration
from memory.report.chart import Chart
from memory.report.charts import by_process, gpu_over_time, over_time
from memory.report.ending import ending, marks
from memory.report.history import Attempt, History, Track
from memory.report.page import Cell, Column, Fact, Page, Tone
from memory.report.processes import ProcessRow, process_rows
from memory.report.stages import StageRow
from memory.report.text import amount, change
from memory.report.why import add_black_boxes, add_why

ATTEMPTS = 5
"""So many of the earlier ones are shown."""
RANKS = 16
HOW_TO_READ = (
    "U, the unreclaimable memory (anon + shared + kernel), is what an OOM kill looks at. Page cache, "
    "hatched, is given back when memory is short. Drag to look closer, click a stage to see it alone, "
    "step with the arrow keys."
)


def page_of(history: History, *, command: str) -> str:
    """command: what wrote it, to be told at the end."""
    last = history.last
    end = ending(history.evidence, last)
    page = Page(
        history.name,
        subtitle=f"Memory: {end.words}, {duration(last.lasted_s)}"
        + (f", attempt {last.number}" if last.number > 1 else ""),
        tone="bad" if end.is_bad else "",
        footer=f"Written by {command}. Units are powers of 1024.",
    )
    page.facts(_facts(last))
    add_why(page, history)
    add_black_boxes(page, history)
    _attempt(page, history, last, is_last=True)
    earlier = history.attempts[:-1][-ATTEMPTS:]
    if earlier:
        page.heading("Earlier attempts")
        for attempt in reversed(earlier):
            told = ending(history.evidence, attempt, is_last=False)
            lasted = duration(attempt.lasted_s)
            with page.folded(f"Attempt {attempt.number}: {told.words}, {lasted}"):
                _attempt(page, history, attempt, is_last=False)
    if history.notes:
        page.heading("Notes")
        page.items(history.notes)
    page.heading("Next")
    folder = shlex.quote(str(history.evidence.path))
    page.code(f"python -m memory explain {folder}\npython -m memory compare {folder} OTHER_RUN")
    return page.html()


def _attempt(page: Page, history: History, attempt: Attempt, *, is_last: bool) -> None:
    track = attempt.main
    end = ending(history.evidence, attempt, is_last=is_last)
    group = f"attempt{attempt.number}"
    events = marks(history.evidence, track, end, is_last=is_last)
    page.heading("Over time", _sources(track))
    page.figure(over_time(track, events, group=group), caption=HOW_TO_READ if is_last else "")
    gpu = gpu_over_time(track, group=group)
    if gpu is not None:
        page.heading("GPU")
        page.figure(gpu)
    others = [other for other in attempt.tracks if other is not track and other.moments]
    if others:
        page.heading("By rank", "one time axis and one scale")
        highest = max((t.highest.u or 0 for t in attempt.tracks if t.highest is not None), default=0)
        page.figures(
            [(title_of(t), _small(t, group, highest)) for t in (track, *others)[:RANKS] if t.moments]
        )
    page.heading("By stage")
    for shown in attempt.tracks[:RANKS]:
        if shown.rows:
            stage_table(page, shown.rows, title_of(shown) if len(attempt.tracks) > 1 else "")
    if not any(shown.rows for shown in attempt.tracks):
        page.text("No stages were recorded: the run was looked at from outside alone.", "note")
    processes = process_rows(track.moments)
    if processes:
        page.heading("By process", "anon; pages shared since a fork count in each")
        chart = by_process(track, group=group)
        if chart is not None:
            page.figure(chart)
        process_table(page, processes)


def _small(track: Track, group: str, highest: int) -> Chart:
    return replace(over_time(track, height=170, group=group), y_max=highest or None, has_legend=False)


def title_of(track: Track) -> str:
    return "whole job, from outside" if track.rank is None else f"rank {track.rank}"


def _sources(track: Track) -> str:
    told = []
    if track.samples:
        told.append(f"{track.samples:,} samples")
    if track.records:
        told.append(f"{track.records:,} stage records")
    return " and ".join(told)


def _facts(attempt: Attempt) -> list[Fact]:
    track = attempt.fullest
    highest, limit = track.highest, track.limit_bytes
    found: list[Fact] = []
    if highest is not None and highest.u is not None:
        stage = track.stage_at(highest.at_s)
        where = f"in {stage}" if stage else f"after {duration(highest.at_s)}"
        where += f", {title_of(track)}" if len(attempt.tracks) > 1 else ""
        share = highest.u / limit if limit else None
        of = f"{100 * share:.0f}% of {format_bytes(limit)}, " if share is not None and limit else ""
        tone: Tone = "bad" if share is not None and share >= 0.9 else ""
        found.append(Fact("highest U", format_bytes(highest.u), f"{of}{where}", share, tone))
        parts = {
            "main": highest.main,
            "workers": highest.workers,
            "other": highest.other,
            "shared": highest.shmem,
            "kernel": highest.kernel,
        }
        name, most = max(parts.items(), key=lambda part: part[1] or 0)
        found.append(Fact("most of it", format_bytes(most or 0), _PARTS[name]))
    if limit:
        at = "all memory of the host" if track.limit_at == "host" else _short(track.limit_at or "")
        found.append(Fact("limit", format_bytes(limit), at))
    cache = max((moment.cache or 0 for t in attempt.tracks for moment in t.moments), default=0)
    if cache:
        found.append(Fact("page cache, at most", format_bytes(cache), "no danger"))
    gpu = max((moment.gpu or 0 for t in attempt.tracks for moment in t.moments), default=0)
    if gpu:
        found.append(Fact("GPU, at most", format_bytes(gpu)))
    found.append(Fact("time", duration(attempt.lasted_s)))
    return found


def _short(path: str) -> str:
    """The end of a cgroup's path."""
    last = path.rstrip("/").rpartition("/")[2]
    return path if len(path) <= 24 else f"\u2026/{last[-24:]}"


_PARTS = {
    "main": "anon of the main process",
    "workers": "anon of its workers",
    "other": "other processes in the cgroup",
    "shared": "shared memory",
    "kernel": "kernel",
}


def stage_table(page: Page, rows: Sequence[StageRow], caption: str = "") -> None:
    """A row a stage, with the highest U within it as a bar."""
    most = max((row.highest_bytes or 0 for row in rows), default=0) or 1
    columns = [
        Column("stage"),
        Column("times", True),
        Column("seconds", True),
        Column("U before", True),
        Column("highest inside", True),
        Column("after", True),
        Column("change", True),
        Column("anon change", True),
        Column("peak rss", True),
        Column(""),
    ]
    page.table(
        columns,
        [
            [
                Cell(row.name + (f" ({row.thread})" if row.thread else ""), row.name, indent=row.depth),
                Cell(f"{row.times:,}", row.times),
                Cell(f"{row.seconds:.2f}" if row.seconds or row.ended else "-", row.seconds),
                Cell(amount(row.before_bytes), row.before_bytes),
                Cell(
                    amount(row.highest_bytes),
                    row.highest_bytes,
                    bar=None if row.highest_bytes is None else row.highest_bytes / most,
                ),
                Cell(amount(row.unreclaimable_bytes), row.unreclaimable_bytes),
                Cell(change(row.change_bytes), row.change_bytes),
                Cell(change(row.anon_change_bytes), row.anon_change_bytes),
                Cell(amount(peak_rss(row)), peak_rss(row)),
                Cell(how_it_ended(row), tone="bad"),
            ]
            for row in rows
        ],
        caption=caption,
    )


def how_it_ended(row: StageRow) -> str:
    """Empty where it ended as it should."""
    if not row.ended:
        return "did not end"
    return "" if row.error is None else row.error.partition(":")[0][:60]


def peak_rss(row: StageRow) -> int | None:
    """The most within the stage where that was recorded, else the high-water mark up to its end; not known of
    one that did not end.
    """
    if not row.ended:
        return None
    return row.peak_bytes if row.rss_inside_bytes is None else row.rss_inside_bytes


def process_table(page: Page, rows: Sequence[ProcessRow]) -> None:
    """A row a process."""
    most = max(row.highest_bytes for row in rows) or 1
    page.table(
        [
            Column("process"),
            Column("pid", True),
            Column("at first", True),
            Column("highest", True),
            Column("at last", True),
            Column("change", True),
            Column("seen from", True),
            Column("to", True),
        ],
        [
            [
                Cell(row.name + (" (main)" if row.is_main else ""), row.name),
                Cell(str(row.pid), row.pid),
                Cell(amount(row.first_bytes), row.first_bytes),
                Cell(amount(row.highest_bytes), row.highest_bytes, bar=row.highest_bytes / most),
                Cell(amount(row.last_bytes), row.last_bytes),
                Cell(change(row.grown_bytes), row.grown_bytes),
                Cell(duration(row.first_s), row.first_s),
                Cell(duration(row.last_s), row.last_s),
            ]
            for row in rows[:64]
        ],
    )
