"""Charts drawn into a file by matplotlib, as panels of one figure with one legend and a caption."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.figures import count_unit
from experiment_utils.quantities import format_count
from memory.report.chart import Axis, Chart, Series
from memory.report.colors import GREY, LIGHT_GREY, ON_PAGE, duration_unit, size_unit
from memory.report.drawing import give_title, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panels = Sequence[tuple[str, Chart]]
"""(name, chart) of each panel."""

_PANEL_INCHES, _LEGEND_INCHES = (2.5, 2.1), 1.6
_WIDTH_INCHES = 6.4
_MANY_POINTS = 30
_ABOVE_LETTERS = 72
"""A legend up to this long fits above a single column of panels."""
_CAPTION_LETTERS_PER_INCH = 15.5
_TICKS = 6
_HALO = {"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 0.8}


def columns_of(panels: int) -> int:
    """Number of columns of a grid of panels."""
    return panels if panels < 3 else 2 if panels == 4 else 3 if panels <= 9 else 4


def panels_figure(panels: Panels, title: str, caption: str = "", *, is_stacked: bool = False) -> Figure:
    """Draw charts on shared axes.

    Args:
        panels: At least one. Their heights count if they are stacked.
        title: A line above all.
        caption: Sentences below all, wrapped.
        is_stacked: Panels are below each other and share x alone; else they are a grid that shares both axes.
    """
    columns = 1 if is_stacked else columns_of(len(panels))
    rows = math.ceil(len(panels) / columns)
    groups = {one.group for _, chart in panels for one in chart.series if one.group}
    letters = sum(len(group) + len(panels[0][1].legend_title) + 6 for group in groups)
    is_on_right = len(groups) > 1 and (columns > 1 or letters > _ABOVE_LETTERS)
    width = max(
        _WIDTH_INCHES + 0.8 * (is_stacked and is_on_right),
        columns * _PANEL_INCHES[0] + _LEGEND_INCHES * is_on_right,
    )
    lines = textwrap.wrap(caption, int(width * _CAPTION_LETTERS_PER_INCH))
    heights = [chart.height for _, chart in panels] if is_stacked else [1] * rows
    height = sum(heights) / 90 if is_stacked else 3.3 if rows == 1 else rows * _PANEL_INCHES[1]
    figure = new_figure((width, height + 0.3 + 0.15 * len(lines)))
    shares_x = all(chart.x_axis == panels[0][1].x_axis for _, chart in panels)
    grid = figure.subplots(
        rows, columns, squeeze=False, sharex=shares_x, sharey=not is_stacked, height_ratios=heights
    )
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    handles: dict[str, dict[str, Any]] = {}
    for place, (axes, (name, chart)) in enumerate(zip(grid.flat, panels, strict=False)):
        is_lowest = place + columns >= len(panels) or not shares_x
        own = [(name, chart)]
        same_x, same_y = panels if shares_x else own, own if is_stacked else panels
        drawn = _draw(axes, chart, same_x, same_y)
        for group, artists in drawn.items():
            handles.setdefault(group, artists)
        axes.set_title(name)
        axes.tick_params(labelbottom=is_lowest)
        if is_lowest:
            axes.set_xlabel(_axis_label(chart.x_axis, _largest(same_x, "x")), fontsize=9)
        if place % columns == 0:
            axes.set_ylabel(_axis_label(chart.y_axis, _largest(same_y, "y")), fontsize=9)
    _legend(figure, None if is_on_right else grid[0, 0], handles, panels[0][1].legend_title)
    give_title(figure, title, GREY)
    if lines:
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8, color=GREY)
    return figure


def _legend(figure: Figure, first: Axes | None, handles: dict[str, dict[str, Any]], title: str) -> None:
    """Put one legend above the first panel if it is short, else on the right of all."""
    from matplotlib.legend_handler import HandlerTuple

    if len(handles) < 2 and not title:
        return
    options: dict[str, Any] = {
        "handles": [tuple(one.values()) for one in handles.values()], "handlelength": 2.4,
        "handler_map": {tuple: HandlerTuple(ndivide=1, pad=0)},
    }  # fmt: skip
    if first is not None:
        names = [f"{title} {one}".strip() for one in handles]
        first.legend(
            labels=names, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(handles),
            borderaxespad=0.2, columnspacing=1.4, **options,
        )  # fmt: skip
        return
    figure.legend(
        labels=[textwrap.fill(one, 26) for one in handles], loc="outside right upper", title=title or None,
        title_fontsize=8.5, alignment="left", **options,
    )  # fmt: skip


def _draw(axes: Axes, chart: Chart, same_x: Panels, same_y: Panels) -> dict[str, dict[str, Any]]:
    """Draw one chart; returns kind -> artist of each legend entry. same_x: charts with the same axis."""
    x_values, y_values = _values(same_x, "x"), _values(same_y, "y")
    x_size = _unit(chart.x_axis, max(x_values, default=1.0))[0]
    y_size = _unit(chart.y_axis, max(y_values, default=1.0))[0]
    found: dict[str, dict[str, Any]] = {}
    for one in chart.series:
        artist = _draw_series(axes, one, x_size, y_size)
        if one.group:
            found.setdefault(one.group, {}).setdefault(one.kind, artist)
    for limit in chart.limits:
        color = ON_PAGE[limit.color][0]
        axes.axhline(limit.value / y_size, color=color, linewidth=1.2, linestyle=(0, (6, 3)), gid="limit")
        axes.annotate(
            limit.label, (1, limit.value / y_size), (-3, 3), xycoords=("axes fraction", "data"), ha="right",
            textcoords="offset points", fontsize=8, color=ON_PAGE["ink"][0], bbox=_HALO, zorder=5,
        )  # fmt: skip
    _set_scale(axes, "x", chart.x_axis, [value / x_size for value in x_values], x_size)
    _set_scale(axes, "y", chart.y_axis, [value / y_size for value in y_values], y_size)
    for row, mark in enumerate(chart.marks):
        _draw_mark(axes, mark, x_size, row)
    for label in chart.labels:
        axes.annotate(
            label.text, (label.x / x_size, label.y / y_size), (4, 0), textcoords="offset points", va="center",
            fontsize=8, bbox=_HALO, zorder=5,
        )  # fmt: skip
    return found


def _draw_series(axes: Axes, one: Series, x_size: float, y_size: float) -> Any:
    import numpy as np

    def numbers(values: Sequence[float | None], size: float) -> Any:
        return np.array([math.nan if value is None else value for value in values], dtype=float) / size

    color, label = ON_PAGE[one.color][0], one.name
    x = numbers(one.x or (), x_size)
    y, low, high = (numbers(values, y_size) for values in (one.y, one.low, one.high))
    if one.kind == "area":
        return axes.fill_between(x, low, high, color=color, alpha=0.22, linewidth=0, gid=label, zorder=1)
    if one.kind == "lost":
        return axes.plot(
            x, [0.97] * len(x), "x", color=ON_PAGE["bad"][0], transform=axes.get_xaxis_transform(), gid=label,
            clip_on=False, zorder=5,
        )[0]  # fmt: skip
    if one.kind == "line":
        style: Any = (0, one.dash) if one.dash else "-"
        width, alpha = (0.6, 0.45) if one.is_thin else (1.5, 1.0)
        return axes.plot(x, y, color=color, linestyle=style, linewidth=width, alpha=alpha, gid=label)[0]
    size = 3.0 if len(x) > _MANY_POINTS else 5.5
    if len(low):
        axes.vlines(x, low, high, color=color, linewidth=1.0, zorder=2)
    is_ring = one.kind == "rings"
    return axes.plot(
        x, y, one.mark, color=color, markersize=size * (0.7 if is_ring else 1), gid=label, zorder=3,
        markerfacecolor="none" if is_ring else color, markeredgecolor=color if is_ring else "black",
        markeredgewidth=0.6,
    )[0]  # fmt: skip


def _draw_mark(axes: Axes, mark: Any, x_size: float, row: int) -> None:
    """A vertical line or a hatched stretch, with its name at the bottom, on the side that has room."""
    color = ON_PAGE["bad" if mark.is_bad else "soft"][0]
    low, high = axes.get_xlim()
    at = mark.at / x_size
    if mark.until is not None:
        axes.axvspan(
            at,
            mark.until / x_size,
            facecolor="none",
            edgecolor=LIGHT_GREY,
            hatch="///",
            linewidth=0,
            zorder=0,
        )
    else:
        axes.axvline(at, color=color, linewidth=1.2, linestyle=(0, (1, 1)), gid="mark")
    place = axes.transAxes.inverted().transform(axes.transData.transform((at, axes.get_ylim()[0])))[0]
    is_right = place > 0.5
    axes.annotate(
        mark.label, (at, 0), (-3 if is_right else 3, 4 + 11 * row), xycoords=("data", "axes fraction"),
        textcoords="offset points", ha="right" if is_right else "left", fontsize=8, color=color, bbox=_HALO,
        zorder=5,
    )  # fmt: skip
    axes.set_xlim(low, high)


def _set_scale(axes: Axes, name: str, axis: Axis, values: Sequence[float], size: float) -> None:
    """Scale, limits and ticks of one axis. values: all that it has to show, divided by `size`."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    own = axes.xaxis if name == "x" else axes.yaxis
    set_limits = axes.set_xlim if name == "x" else axes.set_ylim
    share = 0.03 if name == "x" else 0.06
    is_log = axis.scale == "log"
    if is_log:
        (axes.set_xscale if name == "x" else axes.set_yscale)("log")
        values = [value for value in values if value > 0]
    low, high = min(values, default=0.1), max(values, default=1.0)
    high = high if axis.top is None else min(high, axis.top / size)
    if is_log:
        room = max(high / low, 1.1) ** share
        set_limits(low / room, high * room)
    else:
        reach = share * ((high - low) or abs(high) or 1.0)
        set_limits(0.0 if axis.scale == "zero" else low - reach, high + reach)
    own.set_major_formatter(lambda value, _: _tick(value, axis, is_log=is_log))
    if axis.names or axis.unit == "none":
        own.set_major_locator(FixedLocator(list(range(len(axis.names)))))
    elif is_log:
        own.set_major_locator(FixedLocator(log_ticks(low, high)))
    else:
        own.set_major_locator(MaxNLocator(_TICKS, steps=[1, 2, 2.5, 5, 10]))
    own.set_minor_locator(NullLocator())


def _tick(value: float, axis: Axis, *, is_log: bool) -> str:
    if axis.names:
        return axis.names[round(value)] if 0 <= round(value) < len(axis.names) else ""
    return format_count(value) if axis.unit == "count" and is_log and value >= 1 else plain_number(value)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis: linear steps on a short one, else 1, 2, 5 or decades."""
    from matplotlib.ticker import MaxNLocator

    if high < 3 * low:
        ticks = MaxNLocator(_TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        return [float(tick) for tick in ticks if tick > 0]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        found = [
            step * 10.0**power for power in decades for step in steps if low <= step * 10.0**power <= high
        ]
        if len(found) <= _TICKS:
            return found
    return [10.0**power for power in decades[:: math.ceil(len(decades) / _TICKS)]]


def plain_number(value: float) -> str:
    """`0.001`, `1e15`: without the $ of matplotlib's own powers, which a name can hold too."""
    return f"{value:.6g}".replace("e+", "e")


def _values(panels: Panels, name: str) -> list[float]:
    """All finite values that an axis has to show, its limits and marks included."""
    found: list[float | None] = []
    for _, chart in panels:
        axis = chart.x_axis if name == "x" else chart.y_axis
        found += [axis.end] if axis.end else []
        for one in chart.series:
            for values in (one.x or (),) if name == "x" else (one.y, one.low, one.high):
                found += values
        found += [mark.until or mark.at for mark in chart.marks] if name == "x" else []
        found += [limit.value for limit in chart.limits] if name == "y" else []
    return [value for value in found if value is not None and math.isfinite(value)]


def _largest(panels: Panels, name: str) -> float:
    return max(_values(panels, name), default=1.0)


def _axis_label(axis: Axis, largest: float) -> str:
    unit = _unit(axis, largest)[1]
    return f"{axis.label} ({unit})" if unit else axis.label


def _unit(axis: Axis, largest: float) -> tuple[float, str]:
    """(divisor, unit) of an axis; logarithmic ones show the numbers as they are."""
    if axis.unit == "seconds":
        return duration_unit(largest)
    if axis.unit == "bytes":
        return size_unit(largest)
    return count_unit(largest) if axis.unit == "count" and axis.scale != "log" else (1.0, "")
