"""The charts of a run's memory: over time in stacked parts, by process."""

from __future__ import annotations

from collections.abc import Sequence

from experiment_utils.quantities import format_bytes
from memory.record.stage_line import duration, format_change
from memory.report.chart import Band, Chart, Level, Mark, Series
from memory.report.colors import OF_PARTS, TINTS
from memory.report.history import Track
from memory.report.moments import PARTS
from memory.report.processes import TOLD, anon_over_time, others_over_time, process_rows
from memory.report.stages import Span, longest

BANDS = 1500
_ROWS = 3
_WORDS = {
    "main": ("anon, main", "the main process's own data"),
    "workers": ("anon, workers", "what its descendants hold beyond the pages they share with it"),
    "other": ("other", "anon of other processes in the cgroup, and what is not told apart"),
    "shmem": ("shared", "/dev/shm and shared maps: outlive a kill"),
    "kernel": ("kernel", "page tables, stacks, buffers"),
}
_LINES = ("sky", "purple", "green", "orange", "yellow", "red", "grey", "ink")


def words_of(part: str, track: Track) -> str:
    """What a part of U is called; `main` alone stands for all anon where nobody else holds any."""
    if part == "main" and not any(moment.workers or moment.other for moment in track.moments):
        return "anon"
    return _WORDS[part][0]


def parts_worth_showing(track: Track) -> list[str]:
    """The parts of U that reach a hundredth of it; those that never do would only lengthen the legend."""
    highest = track.highest
    least = (highest.u or 0) // 100 if highest is not None else 0
    return [part for part in PARTS if any((getattr(m, part) or 0) > least for m in track.moments)]


def over_time(
    track: Track, marks: Sequence[Mark] = (), *, height: int = 320, group: str = "", label: str = ""
) -> Chart:
    """U in parts that add up to it, page cache hatched above, stages as bands, the limit as a line."""
    moments = track.moments
    series = [
        Series(words_of(part, track), values, OF_PARTS[part], "stack", note=_WORDS[part][1])
        for part in PARTS
        if any(values := [getattr(moment, part) for moment in moments])
    ]
    highest = track.highest
    peak = highest.u if highest is not None and highest.u is not None else 0
    cache = [moment.cache for moment in moments]
    if any(cache):
        most = max((m.u or 0) + (m.cache or 0) for m in moments)
        limit = track.limit_bytes or 0
        is_within = most <= max(limit if limit <= 2.5 * peak else 0, 2 * peak)
        note = "given back when memory is short: no danger"
        series.append(Series("page cache", cache, "cache", "hatch", shown=is_within, note=note))
    if peak:
        whose = "of the job" if track.scope == "job" else "of the processes"
        series.append(Series(f"U, {whose}", [moment.u for moment in moments], "ink", "line"))
    rss = [moment.rss for moment in moments]
    if any(rss):
        note = "what top shows: mapped files count, and a shared page once in each process"
        series.append(Series("rss", rss, "soft", "dash", shown=not peak, note=note))
    return Chart(
        label or f"memory over time, highest {format_bytes(peak)}",
        [moment.at_s for moment in moments],
        series,
        bands(track),
        limit_level(track),
        marks,
        height=height,
        group=group,
        x_range=(0.0, max([track.lasted_s, *(mark.at for mark in marks)])),
    )


def gpu_over_time(track: Track, *, group: str = "") -> Chart | None:
    """Bytes of tensors, of torch's allocator and of all processes on the device; None: no GPU was seen."""
    held = [moment for moment in track.moments if moment.gpu is not None]
    if not held:
        return None
    series = [Series("GPU, in use", [moment.gpu for moment in held], "red")]
    reserved = [moment.gpu_reserved for moment in held]
    if any(reserved):
        series.append(Series("GPU, reserved", reserved, "ink", "dash"))
    of_all = [(moment.at_s, moment.gpu_used) for moment in track.moments if moment.gpu_used is not None]
    if of_all:
        at, used = zip(*of_all, strict=True)
        series.append(Series("GPU, used by all processes", used, "soft", x=at))
    times = [moment.at_s for moment in held]
    span = (0.0, track.lasted_s)
    return Chart("memory of the GPU over time", times, series, height=180, group=group, x_range=span)


def by_process(track: Track, *, group: str = "", height: int = 240) -> Chart | None:
    """A line for the main process and each of the largest others; None where there is but one."""
    rows = process_rows(track.moments)
    if len(rows) < 2:
        return None
    series = []
    for number, row in enumerate(rows[:TOLD]):
        times, values = anon_over_time(track.moments, row.pid)
        color = "blue" if row.is_main else _LINES[number % len(_LINES)]
        series.append(Series(row.label, values, color, x=times))
    if len(rows) > TOLD:
        times, values = others_over_time(track.moments, {row.pid for row in rows[:TOLD]})
        series.append(Series(f"{len(rows) - TOLD} others", values, "soft", "dash", x=times))
    span = (0.0, track.lasted_s)
    return Chart("anon by process over time", (), series, height=height, group=group, x_range=span)


def bands(track: Track) -> list[Band]:
    """Stages as bands, the outer ones above; a stage keeps its colour. Of very many the longest."""
    rows = sorted({row.depth for row in track.rows if row.thread is None})[:_ROWS]
    threads = [thread for thread in dict.fromkeys(span.thread for span in track.spans) if thread is not None]
    place = {None: 0} | {thread: len(rows) + number for number, thread in enumerate(threads[:2])}
    names = list(dict.fromkeys(span.name for span in track.spans))
    shown = [
        span
        for span in track.spans
        if span.thread in place and (span.depth in rows if span.thread is None else span.depth == 0)
    ]
    return [
        Band(
            span.name,
            span.begin_s,
            span.end_s,
            f"tint{names.index(span.name) % TINTS}",
            place[span.thread] + (rows.index(span.depth) if span.thread is None else 0),
            _told(span),
        )
        for span in longest(shown, BANDS)
    ]


def limit_level(track: Track) -> list[Level]:
    limit = track.limit_bytes
    if limit is None:
        return []
    whose = "memory of the host" if track.limit_at == "host" else "limit"
    return [Level(limit, f"{whose} {format_bytes(limit)}")]


def _told(span: Span) -> str:
    parts = [f"step {span.step:,}"] if span.step else []
    parts.append("did not end" if span.end_s is None else duration(span.seconds))
    if span.before_bytes is not None and span.after_bytes is not None:
        parts.append(f"{format_change(span.after_bytes - span.before_bytes)} U")
    if span.thread is not None:
        parts.append(f"thread {span.thread}")
    if span.error is not None:
        parts.append(span.error[:100])
    return ", ".join(parts)
