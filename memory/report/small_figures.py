"""Pictures beside that of the whole: anon by process, and U of each rank on one scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from experiment_utils.quantities import format_bytes
from memory.report.charts import words_of
from memory.report.colors import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    duration_unit,
    size_unit,
)
from memory.report.drawing import SIZE_INCHES, give_title, new_figure, own_style, png
from memory.report.figure import PART_COLORS
from memory.report.history import Attempt, History, Track
from memory.report.html import RANKS, title_of
from memory.report.moments import PARTS
from memory.report.processes import TOLD, anon_over_time, process_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLORS = (BLUE, PURPLE, GREEN, ORANGE, SKY, VERMILLION, "black", YELLOW)
_STYLES = ("-", (0, (5, 2)), (0, (1, 1)))
_COLUMNS = 3


def pictures(history: History, attempt: Attempt) -> dict[str, bytes]:
    """File name -> PNG: `memory-processes.png` of several processes, `memory-ranks.png` of several ranks."""
    with own_style():
        drawn = {
            "memory-processes.png": process_figure(attempt.main, history.name),
            "memory-ranks.png": rank_figure(attempt, history.name),
        }
        return {name: png(figure) for name, figure in drawn.items() if figure is not None}


def process_figure(track: Track, title: str) -> Figure | None:
    """Anon of the main process and the largest others over time; None of a single process."""
    rows = process_rows(track.moments)
    if len(rows) < 2:
        return None
    scale, unit = size_unit(max(row.highest_bytes for row in rows))
    scale_s, time_unit = duration_unit(track.lasted_s)
    figure = new_figure((SIZE_INCHES[0], 3.0))
    axes = figure.subplots()
    for number, row in enumerate(rows[:TOLD]):
        times, values = anon_over_time(track.moments, row.pid)
        axes.plot(
            [time / scale_s for time in times],
            [math.nan if value is None else value / scale for value in values],
            color=_COLORS[number % len(_COLORS)],
            linestyle=_STYLES[number % len(_STYLES)],
            linewidth=2.0 if row.is_main else 1.3,
            label=row.label,
        )
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, max(track.lasted_s / scale_s, 1e-3))
    axes.set_xlabel(f"{time_unit} since the run began")
    axes.set_ylabel(f"anon ({unit})")
    figure.legend(loc="outside lower center", ncols=3, handlelength=2.2)
    more = f"; {len(rows) - TOLD} smaller ones left out" if len(rows) > TOLD else ""
    give_title(figure, f"{title}, by process{more}", GREY)
    return figure


def rank_figure(attempt: Attempt, title: str) -> Figure | None:
    """Small multiples with one time axis and one scale: U as each rank saw it; None of a single rank."""
    tracks = [track for track in attempt.tracks if track.moments][:RANKS]
    if len(tracks) < 2:
        return None
    highest = max((track.highest.u or 0 for track in tracks if track.highest is not None), default=0)
    limits = {track.limit_bytes for track in tracks if track.limit_bytes}
    scale, unit = size_unit(highest)
    scale_s, time_unit = duration_unit(attempt.lasted_s)
    columns = _COLUMNS if len(tracks) % _COLUMNS == 0 or len(tracks) > 4 else 2
    lines = math.ceil(len(tracks) / columns)
    figure = new_figure((SIZE_INCHES[0], 1.1 + 1.5 * lines))
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for place, axes in enumerate(grid.flat):
        if place >= len(tracks):
            axes.set_axis_off()
            continue
        track = tracks[place]
        times = [moment.at_s / scale_s for moment in track.moments]
        stacked = {part: [(getattr(m, part) or 0) / scale for m in track.moments] for part in PARTS}
        axes.stackplot(
            times, *stacked.values(), labels=[words_of(part, track) for part in stacked],
            colors=[PART_COLORS[part] for part in stacked], linewidth=0,
        )  # fmt: skip
        for limit in limits:
            if limit <= 2 * highest:
                axes.axhline(
                    limit / scale, color=VERMILLION, linewidth=1.2, label=f"limit: {format_bytes(limit)}"
                )
        axes.set_title(title_of(track))
    grid[0, 0].set_xlim(0, max(attempt.lasted_s / scale_s, 1e-3))
    for axes in grid[-1]:
        axes.set_xlabel(f"{time_unit} since the start", fontsize=9)
    for axes in grid[:, 0]:
        axes.set_ylabel(f"memory ({unit})", fontsize=9)
    named = {
        label: handle
        for axes in grid.flat
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(named.values(), named, loc="outside lower center", ncols=4, handlelength=1.4)
    give_title(figure, f"{title}, by rank", GREY)
    return figure
