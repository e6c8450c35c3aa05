"""Curves of many runs in one picture: raw and smoothed, seeds as bands, colours by what varies.

Colours of numbers are of viridis, which rises in lightness and which the colour-blind read; of words those of
Okabe and Ito, with a line style each, so that the picture reads in grey too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.figures import count_unit, smoothed
from analysis.reading.curves import curve
from analysis.reading.study import Run
from analysis.setups import SEEDS
from experiment_utils.errors import UserError
from experiment_utils.json_values import is_number
from memory.report.colors import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, duration_unit
from memory.report.drawing import new_figure

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 5)))
_MEANS = 50
"""The smoothed curve of losses of single steps is a mean over one in so many parts of them."""
_MOST_RAW = 12
"""Of more runs the raw curves would cover everything."""
_GRID = 400
_LEGEND = 12


@dataclass(frozen=True)
class Line:
    """Of one run. x ascending; raw and mean of one length."""

    run: Run
    x: np.ndarray
    raw: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True)
class Bundle:
    """Runs that are alike but for their seed. label: what sets them apart; value: what its colour tells."""

    label: str
    value: Any
    lines: tuple[Line, ...]

    def band(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(x, lowest, mean, highest) of the smoothed curves, at each x of those that come so far."""
        import numpy as np

        low = min(float(line.x[0]) for line in self.lines)
        high = max(float(line.x[-1]) for line in self.lines)
        x = np.linspace(low, high, _GRID)
        table = np.array([np.interp(x, line.x, line.mean, left=np.nan, right=np.nan) for line in self.lines])
        known = np.isfinite(table).any(axis=0)  # none is between two that have no x in common
        x, table = x[known], table[:, known]
        return x, np.nanmin(table, axis=0), np.nanmean(table, axis=0), np.nanmax(table, axis=0)


def bundles_of(
    runs: Sequence[Run], x: str, y: str, by: str | None, smooth: int | None = None,
    facts: Collection[str] = (),
) -> tuple[list[Bundle], list[str]]:  # fmt: skip
    """(bundles in order of their value, a line for each run that has no curve).

    smooth: points of the running mean; None: chosen by length. facts: columns that the names of foreign files
    tell; without a seed among them each file is a curve of its own.
    """
    from analysis.columns import varying_columns

    names = [name for name in varying_columns(runs) if not name.startswith("seed")]
    apart = names if all(run.is_ours for run in runs) else None
    if apart is None and "seed" in facts:
        apart = sorted({*facts} - {*SEEDS})
    groups: dict[tuple[str, ...], list[Line]] = {}
    left_out = []
    for run in runs:
        try:
            line = _line(run, x, y, smooth)
        except UserError as error:
            left_out.append(f"{run.name}: {error}")
            continue
        if line is None:
            left_out.append(f"{run.name}: it has fewer than two points of {y} over {x}")
            continue
        key = tuple(repr(run.value(name)) for name in apart) if apart is not None else (run.name,)
        groups.setdefault(key, []).append(line)
    told = [by] if by else names[:2]
    made = [
        Bundle(_label(lines, told), lines[0].run.value(by) if by else None, tuple(lines))
        for lines in groups.values()
    ]
    return sorted(made, key=lambda one: _rank(one.value if by else one.label)), left_out


def curves_figure(
    bundles: Sequence[Bundle], x: str, y: str, by: str | None, *, title: str, log_x: bool = False
) -> Figure:
    """The figure of at least one bundle."""
    figure = new_figure()
    axes = figure.subplots()
    scale, unit = _unit(x, max(float(line.x[-1]) for bundle in bundles for line in bundle.lines))
    numbers = [bundle.value for bundle in bundles if is_number(bundle.value)]
    is_numeric = len(numbers) == len(bundles) and len(set(numbers)) > 2
    looks = _numeric_looks(bundles) if is_numeric else _named_looks(bundles)
    shows_raw = sum(len(bundle.lines) for bundle in bundles) <= _MOST_RAW
    told: set[str] = set()
    for bundle, (color, style) in zip(bundles, looks, strict=True):
        label = None if bundle.label in told or len(told) >= _LEGEND else bundle.label
        told.add(bundle.label)
        _draw(axes, bundle, scale, color, style, label, shows_raw)
    _limit(axes, bundles)
    axes.set_xlabel(f"{_words(x)}{unit}")
    units = {name: unit for one in bundles for line in one.lines for name, unit in line.run.metrics.items()}
    unit_y = "nats a token" if y in ("train_loss", "val_loss") else units.get(y, "")
    axes.set_ylabel(f"{y} ({unit_y})" if unit_y else y)
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(_plain_number)
    if is_numeric:
        _color_bar(figure, axes, bundles, by or "")
    elif any(told):
        more = len({bundle.label for bundle in bundles}) - _LEGEND
        axes.legend(loc="upper right", title=f"and {more} more" if more > 0 else None)
    axes.set_title(title)
    return figure


def _line(run: Run, x: str, y: str, smooth: int | None) -> Line | None:
    import numpy as np

    found = curve(run, [x, y])
    known = np.isfinite(found[x]) & np.isfinite(found[y])
    if known.sum() < 2:
        return None
    here, raw = found[x][known], found[y][known]
    chosen = max(1, len(raw) // _MEANS) if "train" in y else 1  # an evaluation is a mean already
    window = smooth if smooth is not None else chosen
    return Line(run, here, raw, smoothed(raw, window) if window > 1 else raw)


def _draw(
    axes: Axes, bundle: Bundle, scale: float, color: Any, style: Any, label: str | None, shows_raw: bool
) -> None:
    if shows_raw:
        for line in bundle.lines:
            if (line.raw != line.mean).any():
                axes.plot(line.x / scale, line.raw, color=color, linewidth=0.5, alpha=0.3, zorder=1)
    if len(bundle.lines) == 1:
        line = bundle.lines[0]
        axes.plot(
            line.x / scale, line.mean, color=color, linestyle=style, linewidth=1.6, label=label, zorder=3
        )
        return
    x, low, mean, high = bundle.band()
    axes.fill_between(x / scale, low, high, color=color, alpha=0.25, linewidth=0, zorder=2)
    axes.plot(x / scale, mean, color=color, linestyle=style, linewidth=1.6, label=label, zorder=3)


def _limit(axes: Axes, bundles: Sequence[Bundle]) -> None:
    """Runs that exploded do not flatten the others."""
    import numpy as np

    starts = [float(line.mean[0]) for bundle in bundles for line in bundle.lines]
    values = np.concatenate([line.mean for bundle in bundles for line in bundle.lines])
    top, low = float(np.median(starts)) * 1.1, float(values.min())
    if float(values.max()) > 1.3 * top:
        axes.set_ylim(low - 0.05 * (top - low), top)


def _numeric_looks(bundles: Sequence[Bundle]) -> list[tuple[Any, Any]]:
    from matplotlib import colormaps

    palette, place = colormaps["viridis"], _places(bundles)
    return [(palette(0.92 * one), "-") for one in place]


def _places(bundles: Sequence[Bundle]) -> list[float]:
    """0 to 1, by log where values span a decade or more."""
    values = [float(bundle.value) for bundle in bundles]
    if min(values) > 0 and max(values) >= 10 * min(values):
        values = [math.log10(value) for value in values]
    low, reach = min(values), (max(values) - min(values)) or 1.0
    return [(value - low) / reach for value in values]


def _named_looks(bundles: Sequence[Bundle]) -> list[tuple[Any, Any]]:
    labels = list(dict.fromkeys(bundle.label for bundle in bundles))
    place = {label: number for number, label in enumerate(labels)}
    return [
        (COLORS[place[one.label] % len(COLORS)], STYLES[place[one.label] // len(COLORS) % len(STYLES)])
        if len(labels) > len(STYLES)
        else (COLORS[place[one.label]], STYLES[place[one.label]])
        for one in bundles
    ]


def _color_bar(figure: Figure, axes: Axes, bundles: Sequence[Bundle], by: str) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize

    values = [float(bundle.value) for bundle in bundles]
    is_log = min(values) > 0 and max(values) >= 10 * min(values)
    norm = (LogNorm if is_log else Normalize)(min(values), max(values))
    palette: Colormap = ListedColormap([colormaps["viridis"](0.92 * step / 255) for step in range(256)])
    bar = figure.colorbar(ScalarMappable(norm, palette), ax=axes, label=by)
    bar.ax.yaxis.set_major_formatter(_plain_number)


def _label(lines: Sequence[Line], names: Sequence[str]) -> str:
    run = lines[0].run
    told = ", ".join(_shown(run.value(name)) for name in names) or run.name
    return told + (f" ({len(lines)} seeds)" if len(lines) > 1 else "")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain_number(value: float, _: float) -> str:
    """`0.001`, `1e+15`: without the mathematics that names with a $ must not become."""
    return f"{value:g}"


def _rank(value: Any) -> tuple[bool, float, str]:
    """Numbers before words; `64d` as 64, so that 112d does not come first."""
    if is_number(value):
        return False, float(value), ""
    first = re.match(r"\d+", str(value))
    return True, float(first[0]) if first else math.inf, str(value)


def _unit(x: str, largest: float) -> tuple[float, str]:
    if x in ("time", "seconds"):
        scale, unit = duration_unit(largest)
        return scale, f" ({unit})"
    if "flops" in x:
        return 1.0, ""
    return count_unit(largest)


def _words(x: str) -> str:
    return {"time": "time in training", "seconds": "time in training", "flops": "training FLOPs"}.get(x, x)
