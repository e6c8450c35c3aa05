"""Figures of a run's memory: over time in stacked parts, on the GPU, by process, of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from experiment_utils.quantities import format_bytes
from memory.record.stage_line import duration, format_change
from memory.report.chart import DASHES, Axis, Band, Chart, LimitLine, Mark, Series, Unit
from memory.report.colors import TINTS
from memory.report.data.ending import Event
from memory.report.data.history import Track
from memory.report.data.processes import process_rows
from memory.report.data.stage_rows import Span, longest

BANDS = 1000
PROCESSES = 8
"""Processes that have a line of their own."""
_ROWS = 3
_LOOKS = {
    "main": ("main", "blue", "solid", "anon of the main process"),
    "workers": ("workers", "purple", "rising", "anon of its descendants, without pages shared with it"),
    "shmem": ("shared", "green", "dots", "/dev/shm and shared maps: outlive a kill"),
    "kernel": ("kernel", "orange", "crossed", "page tables, stacks, buffers"),
    "other": ("other", "grey", "falling", "anon of other processes in the cgroup, and the rest of U"),
}
"""Part of U -> (name, colour, fill, explanation)."""
_LINES = ("blue", "purple", "green", "orange", "sky", "red", "grey", "ink")
PART_NAMES = {part: look[0] for part, look in _LOOKS.items()}


def track_name(track: Track) -> str:
    """`rank 2`; a track without a rank is the whole job."""
    return "whole job, from outside" if track.rank is None else f"rank {track.rank}"


def over_time(track: Track, events: Sequence[Event] = (), *, group: str = "") -> Chart:
    """U in parts that add up to it, page cache above them, stages as bands, and the limit."""
    moments, highest = track.moments, track.highest
    peak = (highest.u or 0) if highest is not None else 0
    series = [
        Series(name, values, color, "stack", pattern, note=note)
        for part, (name, color, pattern, note) in _LOOKS.items()
        if any(values := [getattr(moment, part) for moment in moments])
    ]
    cache = [moment.cache for moment in moments]
    if any(cache):
        most = max((m.u or 0) + (m.cache or 0) for m in moments)
        is_within = most <= (track.limit_bytes or 0) <= 2.5 * peak  # else it dwarfs U, and no limit is near
        note = "reclaimed when memory is short: no danger"
        series.append(Series("page cache", cache, "cache", "stack", "level", shown=is_within, note=note))
    if peak:
        is_job = track.scope == "job" and any(m.kernel for m in moments)
        series.append(
            Series(
                "U of the job" if is_job else "U of the processes", [moment.u for moment in moments], "ink"
            )
        )
    rss = [moment.rss for moment in moments]
    if any(rss):
        # RSS counts a shared page in each process: if it is far above, it must not flatten the rest
        is_near = max(n or 0 for n in rss) <= 1.5 * max(peak, track.limit_bytes or 0) or not peak
        note = "as top shows it: with mapped files, and a shared page once in each process"
        series.append(Series("rss", rss, "soft", dash=DASHES[1], shown=is_near, note=note))
    return Chart(
        f"memory over time, highest {format_bytes(peak)}", [moment.at_s for moment in moments], series,
        _time_axis(track), Axis("memory", "bytes"), limit_lines(track), bands(track),
        [Mark(*event) for event in events], setup_bands(track), group=group,
    )  # fmt: skip


def gpu_over_time(track: Track, *, group: str = "") -> Chart | None:
    """Bytes of tensors, of torch's allocator and of all processes on the device; None without a GPU."""
    held = [m for m in track.moments if m.gpu is not None or m.gpu_used is not None]
    if not any(m.gpu is not None for m in held):
        return None
    looks = (
        ("gpu", "tensors", "red"),
        ("gpu_reserved", "reserved", "ink"),
        ("gpu_used", "all processes", "soft"),
    )
    series = [
        Series(name, values, color, dash=dash, spans_gaps=True)
        for (field, name, color), dash in zip(looks, DASHES, strict=False)
        if any(values := [getattr(moment, field) for moment in held])
    ]
    axes = _time_axis(track), Axis("GPU", "bytes")
    return Chart("memory of the GPU", [m.at_s for m in held], series, *axes, height=180, group=group)


def gpu_activity(track: Track, *, group: str = "") -> list[Chart]:
    """Busy time and power of the GPU over time, if its driver reports them."""
    looks: tuple[tuple[str, str, Unit, float], ...] = (
        ("gpu_busy", "busy", "percent", 100.0),
        ("gpu_watts", "power", "watts", 0.0),
    )
    found = []
    for field, name, unit, end in looks:
        known = [m for m in track.moments if getattr(m, field) is not None]
        if known:
            series = [
                Series(
                    f"GPU {name}", [getattr(m, field) for m in known], "red" if unit == "percent" else "ink"
                )
            ]
            axes = _time_axis(track), Axis(f"GPU {name}", unit, end=end)
            chart = Chart(f"GPU, {name}", [m.at_s for m in known], series, *axes, height=120, group=group)
            found.append(chart)
    return found


def by_process(track: Track, *, group: str = "") -> Chart | None:
    """A line for the main process and each of the largest others; None for a single process."""
    rows = process_rows(track.moments)
    if len(rows) < 2:
        return None
    held = [(m.at_s, {h.pid: h.anon_bytes for h in m.holders}) for m in track.moments if m.holders]
    series = [
        Series(row.label, [anon.get(row.pid) for _, anon in held], color, dash=DASHES[number % len(DASHES)])
        for number, (row, color) in enumerate(zip(rows[:PROCESSES], _LINES, strict=False))
    ]
    if others := {row.pid for row in rows[PROCESSES:]}:
        sums = [sum(n for pid, n in anon.items() if pid in others) for _, anon in held]
        series.append(Series(f"{len(others)} others together", sums, "soft", dash=DASHES[2]))
    axes = _time_axis(track), Axis("anon", "bytes")
    return Chart("anon by process", [at_s for at_s, _ in held], series, *axes, height=240, group=group)


def by_rank(tracks: Sequence[Track], *, group: str = "") -> list[tuple[str, Chart]]:
    """(name, chart) of each rank, on one scale; none of a single rank."""
    known = [track for track in tracks if track.moments]
    if len(known) < 2:
        return []
    highest = max((t.highest.u or 0 for t in known if t.highest is not None), default=0)
    lasted_s = max(track.lasted_s for track in known)
    return [
        (track_name(track), on_scale(over_time(track, group=group), lasted_s, highest, height=170))
        for track in known
    ]


def on_scale(chart: Chart, lasted_s: float, highest: float, *, height: int) -> Chart:
    """A smaller chart, for a comparison with others on one scale."""
    x_axis, y_axis = replace(chart.x_axis, end=lasted_s), replace(chart.y_axis, end=highest)
    return replace(chart, x_axis=x_axis, y_axis=y_axis, setup=(), height=height)


def both_over_time(tracks: Sequence[Track], *, group: str = "") -> Chart:
    """U of two runs, A and B, on one axis of time since each began."""
    times = sorted({moment.at_s for track in tracks for moment in track.moments})
    series = []
    for name, track, color, dash in zip("AB", tracks, ("blue", "red"), DASHES, strict=False):
        known = {moment.at_s: moment.u for moment in track.moments}
        values = [known.get(at_s) for at_s in times]
        series.append(Series(f"U of {name}", values, color, dash=dash, spans_gaps=True))
    limits = list({line.value: line for track in tracks for line in limit_lines(track)}.values())
    axis = Axis("time since each began", "seconds")
    return Chart("U of both runs over time", times, series, axis, limits=limits, height=280, group=group)


def bands(track: Track) -> list[Band]:
    """Stages of the main thread as bands, nested ones below; a stage keeps its colour."""
    names = list(dict.fromkeys(span.name for span in track.spans))
    shown = [span for span in track.spans if span.thread is None and span.depth < _ROWS]
    return [
        Band(
            span.name, span.begin_s, span.end_s, span.depth, f"tint{names.index(span.name) % TINTS}",
            _span_note(span),
        )
        for span in longest(shown, BANDS)
    ]  # fmt: skip


def setup_bands(track: Track) -> list[Band]:
    """The outer stages of the setup: those before one that runs more than once or takes half of the time.

    The first stage is setup, unless it is the only one. A run that died in its setup has setup stages only.
    """
    outer = [span for span in track.spans if span.depth == 0 and span.thread is None]
    names, lasted_s = [span.name for span in outer], track.lasted_s
    if len(outer) < 2:
        return []
    found = []
    for index, span in enumerate(outer):
        end_s = lasted_s if span.end_s is None else span.end_s
        if index and (names.count(span.name) > 1 or end_s - span.begin_s > 0.5 * lasted_s > 0):
            break
        found.append(Band(span.name, span.begin_s, end_s))
    return found


def limit_lines(track: Track) -> list[LimitLine]:
    """The limit of U; none if it is unknown."""
    whose, limit = "memory of the host" if track.limit_at == "host" else "limit", track.limit_bytes
    return [] if limit is None else [LimitLine(limit, f"{whose} {format_bytes(limit)}")]


def _time_axis(track: Track) -> Axis:
    since = "the run began" if track.samples else "the first stage began"
    return Axis(f"time since {since}", "seconds", end=track.lasted_s)


def _span_note(span: Span) -> str:
    parts = [f"step {span.step:,}"] if span.step else []
    parts.append("did not end" if span.end_s is None else duration(span.seconds))
    if span.before_bytes is not None and span.after_bytes is not None:
        parts.append(f"{format_change(span.after_bytes - span.before_bytes)} U")
    parts += [span.error[:100]] if span.error is not None else []
    return ", ".join(parts)
