"""Memory of an attempt as a picture: what counts against the limit, what is cached, which stage took it.

Setup is short and is where most memory is taken, so that each of its stages gets the same width; the
rest is drawn over time. Both share one axis of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiment_utils.quantities import format_bytes
from memory.report.chart import Mark
from memory.report.charts import parts_worth_showing, words_of
from memory.report.colors import (
    BLUE,
    GREEN,
    GREY,
    LIGHT_GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    duration_unit,
    size_unit,
)
from memory.report.drawing import give_title, new_figure, own_style, png
from memory.report.ending import ending, marks
from memory.report.history import Attempt, History, Track
from memory.report.moments import Moment
from memory.report.stages import Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PART_COLORS = {"main": BLUE, "workers": PURPLE, "shmem": GREEN, "kernel": ORANGE, "other": LIGHT_GREY}
_LOOP_COLORS = (SKY, YELLOW, "black", GREY)
"""Of the stages after setup, in the order in which they first ran."""
_DASHED = (0, (5, 2))
_SETUP_STAGE_WIDTH = 0.055
"""Of a setup stage, relative to all that is drawn over time."""
_NARROWEST_BAND = 1 / 400
"""Relative to the axis: a stage of milliseconds is still seen."""
_LABELS_HEIGHT_INCHES = 0.48
"""Of an axis's tick labels and label."""
_CHARACTERS_ACROSS = 70
"""Of a band's label, that fit across the axis."""
_MOST_MARKED = 120
"""Of more moments the line has no dots."""
_NOT_A_NUMBER = float("nan")


def picture(history: History, attempt: Attempt) -> bytes:
    """PNG of an attempt."""
    with own_style():
        return png(attempt_figure(history, attempt))


def attempt_figure(history: History, attempt: Attempt) -> Figure:
    """The figure of the attempt's main track."""
    is_last = attempt is history.last
    track, end = attempt.main, ending(history.evidence, attempt, is_last=is_last)
    deaths = [mark for mark in marks(history.evidence, track, end, is_last=is_last) if mark.is_bad]
    title = (
        history.name
        + (f", attempt {attempt.number}" if attempt.number > 1 else "")
        + (f"; {end.words}" if end.is_bad else "")
    )
    return _Drawing(track, title, deaths).figure()


@dataclass(frozen=True)
class _Panel:
    """Moments and where they stand on the x axis; spans: the stages among them."""

    moments: Sequence[Moment]
    positions: Sequence[float]
    spans: Sequence[Span]
    is_setup: bool = False
    is_last: bool = False


class _Drawing:
    """One figure of a track."""

    def __init__(self, track: Track, title: str, deaths: Sequence[Mark]) -> None:
        self.track, self.title, self.deaths = track, title, deaths
        self.has_rss = any(moment.rss for moment in track.moments)
        self.has_gpu = any(moment.gpu for moment in track.moments)
        known = [n for m in track.moments for n in (m.u, m.rss) if n is not None]
        self.largest = max(known, default=0)
        limit, highest = track.limit_bytes, track.highest
        self.has_limit = limit is not None and limit <= 2 * self.largest
        self.parts = parts_worth_showing(track)
        # RSS counts a shared page in each process: where it is far above, it must not flatten the rest
        most = max((highest.u or 0) if highest else 0, (limit or 0) if self.has_limit else 0)
        self.top = min(self.largest, 1.5 * most) if most else self.largest
        self.size, self.size_unit = size_unit(self.largest)
        self.scale_s, self.time_unit = duration_unit(track.lasted_s)

    def figure(self) -> Figure:
        outer = [span for span in self.track.spans if span.depth == 0 and span.thread is None]
        setup, loop = self._panels(outer)
        panels = [panel for panel in (setup, loop) if panel.moments]
        heights = [0.05, 1.0, *([0.5] if self.has_gpu else [])]
        figure = new_figure()
        grid = figure.subplots(
            len(heights), len(panels), squeeze=False, sharey="row", sharex="col", height_ratios=heights,
            width_ratios=[_SETUP_STAGE_WIDTH * max(4, len(setup.spans)), 1.0][-len(panels):],
        )  # fmt: skip
        for column, panel in enumerate(panels):
            strip, axes, *gpu_axes = grid[:, column]
            self._draw_memory(axes, panel)
            for lower in gpu_axes:
                self._draw_gpu(lower, panel)
            if panel.is_setup:
                _draw_setup_stages(grid[:, column], panel)
            else:
                self._draw_loop_stages(strip, grid[-1, column], panel)
            self._draw_end(axes, panel)
        self._draw_limit(grid[1])
        self._tell(grid)
        _legend(figure, grid, is_below_names=len(panels) == 1 and panels[0].is_setup)
        title = self.title + self._limit_far_above()
        give_title(figure, title, GREY)
        return figure

    def _panels(self, outer: Sequence[Span]) -> tuple[_Panel, _Panel]:
        """(stages of the setup, each from position i to i + 1; all that comes behind it, over time)."""
        first = loop_begins(outer, self.track.lasted_s)
        setup_spans, loop_spans = outer[:first], outer[first:]
        moments = self.track.moments
        if not setup_spans:
            return _Panel([], [], []), _Panel(moments, [m.at_s / self.scale_s for m in moments], loop_spans)
        edge_s = loop_spans[0].begin_s if loop_spans else float("inf")
        # what stands exactly on the edge ends the one and begins the other
        index = next((i for i, moment in enumerate(moments) if moment.at_s >= edge_s), len(moments))
        ends = index
        while ends < len(moments) and moments[ends].at_s == edge_s:
            ends += 1
        before = moments[: max(index, ends - 1) if ends < len(moments) else index]
        after = moments[max(index, ends - 1) if ends > index else index :]
        shown = [moment for moment in before if moment.at_s >= setup_spans[0].begin_s]
        placed = [_position(setup_spans, moment.at_s, self.track.lasted_s) for moment in shown]
        setup = _Panel(shown, placed, setup_spans, is_setup=True, is_last=not after)
        return setup, _Panel(after, [moment.at_s / self.scale_s for moment in after], loop_spans)

    def _draw_memory(self, axes: Axes, panel: _Panel) -> None:
        """Stacked parts of U, page cache above them as far as there is room, and the line of RSS."""
        import numpy as np

        x = np.asarray(panel.positions)
        stacked = {part: self._column(panel, part) for part in self.parts}
        u = self._column(panel, "u")
        if stacked:
            axes.stackplot(
                x, *(np.nan_to_num(values) for values in stacked.values()),
                labels=[words_of(part, self.track) for part in stacked],
                colors=[PART_COLORS[part] for part in stacked], linewidth=0,
            )  # fmt: skip
            dots: dict[str, Any] = {"marker": "o", "markersize": 2.0} if len(x) <= _MOST_MARKED else {}
            whose = "of the job" if self._is_of_job else "of the run"
            axes.plot(
                x,
                u,
                color="black",
                linewidth=1.0,
                label=f"unreclaimable, {whose}",
                gid="unreclaimable",
                **dots,
            )
        if self.has_rss:
            axes.plot(
                x, self._column(panel, "rss"), color="black", linewidth=1.2, linestyle=_DASHED,
                label="rss of the run, with mapped files", gid="rss",
            )  # fmt: skip
        cached = max((moment.cache or 0 for moment in panel.moments), default=0)
        if self.has_limit and self._is_of_job and cached > self.top / 100:
            axes.fill_between(
                x, u, u + self._column(panel, "cache"), facecolor="none", edgecolor=LIGHT_GREY, hatch="/////",
                linewidth=0, label="page cache (reclaimable)", zorder=0.5,
            )  # fmt: skip

    @property
    def _is_of_job(self) -> bool:
        return self.track.scope == "job" and any(moment.kernel for moment in self.track.moments)

    def _column(self, panel: _Panel, name: str) -> Any:
        import numpy as np

        values = [getattr(moment, name) for moment in panel.moments]
        return np.asarray([_NOT_A_NUMBER if n is None else n / self.size for n in values], dtype=np.float64)

    def _draw_gpu(self, axes: Axes, panel: _Panel) -> None:
        """Bytes of tensors, of torch's allocator, and of all processes on the device."""
        import numpy as np

        scale, _ = size_unit(self._most_of_gpu)
        for name, label, color, line in (
            ("gpu", "GPU, allocated", VERMILLION, "-"),
            ("gpu_reserved", "GPU, reserved", "black", _DASHED),
            ("gpu_used", "GPU, used by all", GREY, "-"),
        ):
            values = self._column(panel, name) * self.size / scale
            known = ~np.isnan(values)
            if known.any():
                positions = np.asarray(panel.positions)[known]
                axes.plot(
                    positions,
                    values[known],
                    color=color,
                    linestyle=line,
                    linewidth=1.2,
                    label=label,
                    gid=name,
                )

    @property
    def _most_of_gpu(self) -> int:
        return max(n for m in self.track.moments for n in (m.gpu, m.gpu_reserved, m.gpu_used) if n)

    def _draw_loop_stages(self, strip: Axes, lowest: Axes, panel: _Panel) -> None:
        """A band a stage above the memory, named where the name fits; their colours are told above."""
        from matplotlib.patches import Patch, Rectangle

        start, end = panel.positions[0], max(panel.positions[-1], panel.positions[0] + 1e-3)
        strip.set_axis_off()
        strip.set_ylim(0, 1)
        names = list(dict.fromkeys(span.name for span in panel.spans))
        colors = {name: _LOOP_COLORS[min(i, len(_LOOP_COLORS) - 1)] for i, name in enumerate(names)}
        last_s = self.track.lasted_s
        # the shortest last, so that none is hidden behind a longer one
        for span in sorted(panel.spans, key=lambda span: -span.seconds):
            begin = span.begin_s / self.scale_s
            until = (last_s if span.end_s is None else span.end_s) / self.scale_s
            width = max(until - begin, (end - start) * _NARROWEST_BAND)
            color = colors[span.name]
            strip.add_patch(Rectangle((begin, 0), width, 1, color=color, linewidth=0))
            if width / (end - start) * _CHARACTERS_ACROSS > len(span.name) + 1 and color in (SKY, YELLOW):
                strip.text(begin + width / 2, 0.45, span.name, ha="center", va="center", fontsize=7)
        shown = names[: len(_LOOP_COLORS)]
        strip.legend(
            handles=[Patch(color=colors[name], label=name) for name in shown], loc="lower left",
            bbox_to_anchor=(0, 1), ncols=max(1, len(shown)), borderpad=0, borderaxespad=0.3, handlelength=1.0,
            handletextpad=0.5, columnspacing=1.4,
        )  # fmt: skip
        lowest.set_xlim(start, end)
        since = "the run began" if self.track.samples else "the first stage began"
        lowest.set_xlabel(f"{self.time_unit} since {since}")

    def _draw_end(self, axes: Axes, panel: _Panel) -> None:
        """Where the run died."""
        begins_s = panel.moments[0].at_s
        ends_s = panel.moments[-1].at_s if panel.is_setup and not panel.is_last else float("inf")
        told: set[str] = set()
        for death in self.deaths:
            if not begins_s <= death.at <= ends_s:
                continue
            at = (
                _position(panel.spans, death.at, self.track.lasted_s)
                if panel.is_setup
                else death.at / self.scale_s
            )
            label = "_" if death.label in told else death.label
            told.add(death.label)
            axes.axvline(at, color=VERMILLION, linewidth=1.4, linestyle=(0, (1, 1)), label=label, gid="mark")
            low, high = axes.get_xlim()
            axes.set_xlim(low, max(high, at + 0.01 * (at - low)))

    def _draw_limit(self, row: Sequence[Axes]) -> None:
        """The limit, where it does not flatten everything else."""
        limit = self.track.limit_bytes
        if limit is None or not self.has_limit:
            row[0].set_ylim(0, 1.05 * self.top / self.size)
            return
        for axes in row:
            label = f"{self._whose_limit}: {format_bytes(limit)}"
            axes.axhline(limit / self.size, color=VERMILLION, linewidth=1.6, label=label, gid="limit")
        row[0].set_ylim(0, 1.05 * max(limit, self.top) / self.size)

    @property
    def _whose_limit(self) -> str:
        return "memory of the host" if self.track.limit_at == "host" else "limit"

    def _limit_far_above(self) -> str:
        """A remark on a limit that is out of view; empty when it is within."""
        limit = self.track.limit_bytes
        if limit is None or self.has_limit:
            return ""
        return f"; {self._whose_limit}: {format_bytes(limit)}, far above"

    def _tell(self, grid: Any) -> None:
        """Axes of the memory, in units that suit it."""
        grid[1, 0].set_ylabel(f"memory ({self.size_unit})")
        if self.has_gpu:
            scale, unit = size_unit(self._most_of_gpu)
            grid[2, 0].set_ylabel(f"GPU ({unit})")
            grid[2, 0].set_ylim(0, 1.1 * self._most_of_gpu / scale)
            grid[2, -1].legend(loc="lower right", ncols=2, handlelength=2.2)


def loop_begins(outer: Sequence[Span], lasted_s: float) -> int:
    """Index of the first stage after setup: one that runs more than once, or takes half of the time.

    The first stage is setup, unless it is the only one. A run that died in its setup has no such stage.
    """
    names = [span.name for span in outer]
    if len(outer) < 2:
        return 0
    for index, span in enumerate(outer[1:], start=1):
        seconds = lasted_s - span.begin_s if span.end_s is None else span.seconds
        if names.count(span.name) > 1 or seconds > 0.5 * lasted_s > 0:
            return index
    return len(outer)


def _position(spans: Sequence[Span], at_s: float, lasted_s: float) -> float:
    """Stage i is drawn from i, when it begins, to i + 1, when it has ended."""
    index = max((i for i, span in enumerate(spans) if span.begin_s <= at_s), default=0)
    span = spans[index]
    end_s = lasted_s if span.end_s is None else span.end_s
    if at_s >= end_s:
        return index + (1.0 if span.end_s is not None or at_s > span.begin_s else 0.0)
    return index + max(0.0, at_s - span.begin_s) / (end_s - span.begin_s)


def _draw_setup_stages(column: Any, panel: _Panel) -> None:
    """Each stage's name below its part of the axis. column: the strip, then the axes below it."""
    strip, *below = column
    count = len(panel.spans)
    strip.set_axis_off()
    strip.text(0, 0.5, "setup (not to scale)", ha="left", va="center", fontsize=8.5, color=GREY)
    for axes in below:
        for i in range(0, count, 2):
            axes.axvspan(i, i + 1, color="#EEEEEE", zorder=0, linewidth=0)
    lowest = below[-1]
    lowest.set_xlim(0, count)
    lowest.set_xticks([i + 0.5 for i in range(count)], [span.name for span in panel.spans])
    for axes in below:
        axes.tick_params(axis="x", labelrotation=90, length=0, labelsize=8)


def _legend(figure: Figure, grid: Any, *, is_below_names: bool) -> None:
    """The legend of the memory: beside the long names of the setup stages is room for it."""
    from matplotlib.transforms import ScaledTranslation

    found = dict(
        pair[::-1] for axes in grid[1] for pair in zip(*axes.get_legend_handles_labels(), strict=True)
    )
    handles, labels = list(found.values()), list(found)
    if is_below_names:
        figure.legend(handles, labels, loc="outside lower center", ncols=2, handlelength=2.2)
        return
    lowest = grid[-1, -1]
    below_its_label = lowest.transAxes + ScaledTranslation(0, -_LABELS_HEIGHT_INCHES, figure.dpi_scale_trans)
    own = lowest.get_legend()
    lowest.legend(
        handles, labels, loc="upper right", bbox_to_anchor=(1, 0), bbox_transform=below_its_label, ncols=2,
        borderpad=0, borderaxespad=0, handlelength=2.2, columnspacing=1.4,
    )  # fmt: skip
    if own is not None:
        lowest.add_artist(own)
