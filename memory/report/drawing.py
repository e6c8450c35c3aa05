"""Charts as PNG files, drawn by matplotlib: same size and style everywhere, no window, no warnings."""

from __future__ import annotations

import io
import logging
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from experiment_utils.errors import UserError
from memory.report.chart import PATTERNS, Band, Chart
from memory.report.colors import GREY, ON_PAGE, axis_unit, duration_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE_INCHES = (6.4, 4.0)
DPI = 150
_TITLE_POINTS, _POINTS_PER_INCH = 9, 72
_LETTER_WIDTH = 0.62
"""Mean width of DejaVu Sans, in heights."""
_HATCHES = dict(zip(PATTERNS, ("", "////", "...", "xxx", "\\\\\\\\", "---"), strict=True))
_SETUP_WIDTH = 0.055
"""Width of a setup stage, relative to all that is drawn over time."""
_NARROWEST_BAND = 1 / 400
"""Relative to the axis: a stage of milliseconds is still seen."""
_NAMED_BANDS = 6
_MOST_DOTS = 120
_STYLE = {
    "text.parse_math": False,  # a run's name may hold a $
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlecolor": "#555555",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
}


def charts_figure(charts: Sequence[tuple[str, Chart]], title: str) -> Figure:
    """Draw charts below each other on one x axis, each with its name, if it has one.

    The setup of the first chart has a panel of its own on the left.
    """
    first = charts[0][1]
    edge = first.setup[-1].end if first.setup else None
    has_loop = edge is None or edge < first.ends
    panels = (edge is not None) + has_loop
    heights = [0.05, *(chart.height / first.height for _, chart in charts)]
    size = (SIZE_INCHES[0], (4.0 if first.setup else 3.0) if len(charts) < 3 else 1.0 + 1.2 * len(charts))
    figure = new_figure(size)
    grid = figure.subplots(
        len(heights), panels, squeeze=False, sharey="row", sharex="col", height_ratios=heights,
        width_ratios=[_SETUP_WIDTH * max(4, len(first.setup)), 1.0][-panels:],
    )  # fmt: skip
    drawn = [chart for _, chart in charts]
    if edge is not None:
        _setup_panel(grid[:, 0], drawn)
    if has_loop:
        _loop_panel(grid[:, -1], drawn, edge or 0.0)
    handles: dict[str, Any] = {}
    for row, (name, chart) in zip(grid[1:], charts, strict=True):
        _finish_y(row, chart)
        row[0].set_title(name)
        for axes in row:
            found, labels = axes.get_legend_handles_labels()
            handles |= dict(zip(labels, found, strict=True))
    for columns in range(5, 0, -1):  # as many as fit into the width
        legend = figure.legend(
            handles.values(), handles, loc="outside lower right", ncols=columns, handlelength=2.2,
            columnspacing=1.4,
        )  # fmt: skip
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    away = "".join(f"; {limit.label}, far above" for limit in first.limits_out_of_view)
    give_title(figure, title + away, GREY)
    return figure


def _setup_panel(column: Any, charts: Sequence[Chart]) -> None:
    """Setup stages, each of the same width, with its name below. column: the strip, and the axes below it."""
    import numpy as np

    bands = charts[0].setup
    edges = [band.begin for band in bands] + [bands[-1].end or 0.0]
    for i in range(1, len(edges)):
        edges[i] = max(edges[i], edges[i - 1] + 1e-6)
    column[0].set_axis_off()
    column[0].text(
        0, 0.5, "setup (not to scale)", va="center", fontsize=8.5, color=GREY, transform=column[0].transAxes
    )
    for axes, chart in zip(column[1:], charts, strict=True):
        scale, _ = _draw(axes, chart, edges[0], edges[-1], is_setup=True)
        ends = np.asarray(edges) / scale
        places = np.arange(len(ends))
        axes.set_xscale("function", functions=(_interpolation(ends, places), _interpolation(places, ends)))
        axes.set_xlim(ends[0], ends[-1])
        for begin, end in list(pairwise(ends))[::2]:
            axes.axvspan(begin, end, color="#EEEEEE", zorder=0, linewidth=0)
        middles = _interpolation(places, ends)(places[:-1] + 0.5)
        axes.set_xticks(middles, [band.label for band in bands], rotation=90, fontsize=8)
        axes.tick_params(axis="x", length=0)


def _interpolation(xs: Any, ys: Any) -> Callable[[Any], Any]:
    import numpy as np

    return lambda values: np.interp(values, xs, ys)


def _loop_panel(column: Any, charts: Sequence[Chart], begins: float) -> None:
    """All from `begins` over time. column: the strip of bands, and the axes below it."""
    strip, ends = column[0], charts[0].ends
    for axes, chart in zip(column[1:], charts, strict=True):
        scale, unit = _draw(axes, chart, begins, ends)
    last = column[-1]
    last.set_xlabel(unit)
    last.set_xlim(begins / scale, max(ends + 0.005 * (ends - begins), begins + 1e-3) / scale)
    _draw_bands(strip, [b for b in charts[0].bands if b.row == 0 and b.begin >= begins], scale, ends)


def _draw_bands(strip: Axes, bands: Sequence[Band], scale: float, ends: float) -> None:
    """A rectangle for each band, and their names in a legend above."""
    from matplotlib.patches import Patch, Rectangle

    strip.set_axis_off()
    strip.set_ylim(0, 1)
    names = list(dict.fromkeys(band.label for band in bands))
    hatches = list(_HATCHES.values())
    begins = min((band.begin for band in bands), default=0.0)

    def look(name: str) -> dict[str, Any]:
        color = next(band.color for band in bands if band.label == name)
        hatch = hatches[names.index(name) % len(hatches)]
        return {"facecolor": ON_PAGE[color][0], "edgecolor": GREY, "hatch": hatch, "linewidth": 0.4}

    # the shortest last, so that none is hidden behind a longer one
    for band in sorted(bands, key=lambda band: band.begin - (ends if band.end is None else band.end)):
        end = ends if band.end is None else band.end
        width = max(end - band.begin, (ends - begins) * _NARROWEST_BAND)
        strip.add_patch(Rectangle((band.begin / scale, 0), width / scale, 1, **look(band.label)))
    handles = [Patch(label=name, **look(name)) for name in names[:_NAMED_BANDS]]
    if handles:
        strip.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(handles), borderpad=0,
            borderaxespad=0.3, handlelength=1.2, handletextpad=0.5, columnspacing=1.4, fontsize=8,
        )  # fmt: skip


def _draw(
    axes: Axes, chart: Chart, begins: float, ends: float, *, is_setup: bool = False
) -> tuple[float, str]:
    """Draw a chart between two x values; returns the divisor of x, and the label of x with its unit."""
    import numpy as np

    x = np.asarray(chart.x, dtype=float)
    within = (begins <= x) & (x <= ends)
    scale, unit = duration_unit(chart.ends)
    size, _ = axis_unit(chart.y_axis.unit, chart.highest)
    at = x[within] / scale
    for one, below, above in chart.stacked():
        low, high = np.asarray(below)[within] / size, np.asarray(above)[within] / size
        is_cache = one.color == "cache"
        axes.fill_between(
            at, low, high, facecolor="none" if is_cache else ON_PAGE[one.color][0],
            edgecolor="#BBBBBB" if is_cache else "#FFFFFF99", hatch=_HATCHES[one.pattern], linewidth=0,
            label=one.name, gid=one.name,
        )  # fmt: skip
    for one in chart.series:
        if one.kind != "line" or not one.shown:
            continue
        y = np.asarray([math.nan if v is None else v for v in one.y], dtype=float)[within] / size
        known = ~np.isnan(y) if one.spans_gaps else np.ones(len(y), dtype=bool)
        style: Any = (0, one.dash) if one.dash else "-"
        has_dots = one.color == "ink" and not one.dash and len(at) <= _MOST_DOTS
        axes.plot(
            at[known], y[known], color=ON_PAGE[one.color][0], linestyle=style, linewidth=1.3,
            marker="o" if has_dots else None, markersize=2.0, label=one.name, gid=one.name,
        )  # fmt: skip
    for limit in chart.limits_in_view:
        axes.axhline(limit.value / size, color=ON_PAGE["red"][0], linewidth=1.6, gid="limit", label="_limit")
        if not is_setup:
            axes.annotate(
                limit.label, (0, limit.value / size), (4, -3), xycoords=("axes fraction", "data"), va="top",
                textcoords="offset points", fontsize=8, color=ON_PAGE["bad"][0], bbox=_HALO,
            )  # fmt: skip
    labels: set[str] = set()
    for mark in chart.marks:
        if begins <= mark.at <= ends:
            color = ON_PAGE["bad" if mark.is_bad else "soft"][0]
            axes.axvline(
                mark.at / scale, color=color, linewidth=1.4, linestyle=(0, (1, 1)), gid="mark", label="_mark"
            )
            if mark.label not in labels:
                axes.annotate(
                    mark.label, (mark.at / scale, 0), (-3, 6 + 11 * len(labels)), fontsize=8, color=color,
                    ha="right", xycoords=("data", "axes fraction"), textcoords="offset points", bbox=_HALO,
                )  # fmt: skip
            labels.add(mark.label)
    return scale, f"{chart.x_axis.label} ({unit})"


_HALO = {"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 0.8}


def _finish_y(row: Any, chart: Chart) -> None:
    size, unit = axis_unit(chart.y_axis.unit, chart.highest)
    row[0].set_ylabel(f"{chart.y_axis.label} ({unit})")
    top = max([chart.highest, chart.y_axis.end, *(limit.value for limit in chart.limits_in_view)])
    row[0].set_ylim(0, 1.05 * (top or 1.0) / size)


def new_figure(size_inches: tuple[float, float] = SIZE_INCHES) -> Figure:
    """A figure for Agg: no window, no display, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size_inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def give_title(figure: Figure, title: str, color: str) -> None:
    """Put a title above all, on as many lines as it needs: matplotlib's own wrapping reads a $ as math."""
    columns = int(figure.get_figwidth() * _POINTS_PER_INCH / (_TITLE_POINTS * _LETTER_WIDTH))
    figure.suptitle(textwrap.fill(title, columns), x=0.01, ha="left", fontsize=_TITLE_POINTS, color=color)


@contextmanager
def own_style() -> Iterator[None]:
    """Draw with the same look whatever the user's matplotlibrc says, without warnings on stderr.

    Raises:
        UserError: matplotlib is not installed.
    """
    # matplotlib warns when it builds its font cache, or has no home to put it in
    chatter = logging.getLogger("matplotlib")
    level_before = chatter.level
    chatter.setLevel(logging.ERROR)
    try:
        try:
            from matplotlib import style
        except ImportError as error:
            raise UserError(
                "a PNG needs matplotlib: pip install matplotlib, or use --html", code="no-matplotlib"
            ) from error
        with style.context(["default", _STYLE]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            yield
    finally:
        chatter.setLevel(level_before)


def save(figure: Figure, file: Any) -> None:
    """Write the figure as PNG."""
    figure.savefig(file, format="png", dpi=DPI)


def png(figure: Figure) -> bytes:
    """The figure as PNG."""
    file = io.BytesIO()
    save(figure, file)
    return file.getvalue()
