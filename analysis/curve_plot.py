"""Curves of many runs as charts: raw and smoothed, seeds as bands, colours by what varies, a panel a size."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.columns import cell, varying_columns
from analysis.figures import looks, natural_order, smoothed, value_key
from analysis.reading.curves import curve
from analysis.reading.study import Run
from analysis.setups import SEEDS
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from memory.report.chart import Axis, Chart, Series, Unit

if TYPE_CHECKING:
    import numpy as np

    from analysis.panels import Panels

_MEANS = 50
"""The smoothed curve of losses of single steps is a mean over one in this many parts of them."""
MOST_TOGETHER = 12
"""More runs than this are drawn in panels by size, and without their raw curves."""
_MOST_PANELS = 24
_GRID = 400


@dataclass(frozen=True)
class RunCurve:
    """The curve of one run."""

    run: Run
    x: np.ndarray
    """Ascending."""
    raw: np.ndarray
    mean: np.ndarray
    """The running mean, as long as `raw`."""


@dataclass(frozen=True)
class Bundle:
    """Runs that are alike except for their seed."""

    label: str
    value: Any
    """The value that decides the colour."""
    lines: tuple[RunCurve, ...]

    def band(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(x, lowest, mean, highest) of the smoothed curves, at each x of those that reach it."""
        import numpy as np

        low = min(float(line.x[0]) for line in self.lines)
        high = max(float(line.x[-1]) for line in self.lines)
        x = np.linspace(low, high, _GRID)
        table = np.array([np.interp(x, line.x, line.mean, left=np.nan, right=np.nan) for line in self.lines])
        known = np.isfinite(table).any(axis=0)  # between two curves without a common x there are none
        x, table = x[known], table[:, known]
        return x, np.nanmin(table, axis=0), np.nanmean(table, axis=0), np.nanmax(table, axis=0)


def settings(runs: Sequence[Run], facts: Collection[str] = ()) -> list[str]:
    """Columns in which runs differ, seeds left out. facts: columns of the names of foreign files."""
    names = varying_columns(runs) if all(run.is_ours for run in runs) else _varying_facts(runs, facts)
    return [name for name in names if name not in SEEDS]


def _varying_facts(runs: Sequence[Run], facts: Collection[str]) -> list[str]:
    return [name for name in sorted(facts) if len({value_key(run.value(name)) for run in runs}) > 1]


def panel_column(runs: Sequence[Run], names: Sequence[str], by: str | None) -> str | None:
    """The column whose values get a panel each: the size, else the setting with the fewest values.

    None for a dozen runs or fewer, or if no column has 2 to 24 values. by: the column of the colours.
    """
    if len(runs) <= MOST_TOGETHER:
        return None
    counts = {name: len({value_key(run.value(name)) for run in runs}) for name in names if name != by}
    fitting = {name: count for name, count in counts.items() if 2 <= count <= _MOST_PANELS}
    return "model" if "model" in fitting else min(fitting, key=lambda name: fitting[name], default=None)


def named_by(runs: Sequence[Run], names: Sequence[str], by: str | None) -> list[str]:
    """The columns that colours and the legend show: two for a dozen runs, one in panels."""
    if by:
        return [by]
    facet = panel_column(runs, names, None)
    return [name for name in names if name != facet][: 1 if facet else 2]


def bundles_of(
    runs: Sequence[Run], x: str, y: str, by: str | None, smooth: int | None = None,
    facts: Collection[str] = (),
) -> tuple[list[Bundle], list[str]]:  # fmt: skip
    """(bundles ordered by their value, a line for each run without a curve).

    Args:
        by: The column of the colours; None: runs are named by what varies.
        smooth: Points of the running mean; None: chosen by length.
        facts: Columns of the names of foreign files. Without a seed among them each file is a curve.
    """
    names = settings(runs, facts)
    is_apart = all(run.is_ours for run in runs) or "seed" in facts
    groups: dict[tuple[str, ...], list[RunCurve]] = {}
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
        key = tuple(value_key(run.value(name)) for name in names) if is_apart else (run.name,)
        groups.setdefault(key, []).append(line)
    shown = named_by(runs, names, by)
    made = [
        Bundle(_label(lines, shown), _value(lines[0].run, shown), tuple(lines)) for lines in groups.values()
    ]
    return sorted(made, key=lambda one: natural_order(one.value)), left_out


def curve_panels(
    bundles: Sequence[Bundle], x: str, y: str, by: str | None, *, facts: Collection[str] = (),
    log_x: bool = False,
) -> tuple[Panels, str]:  # fmt: skip
    """(panels of at least one bundle, a caption); more than a dozen runs get a panel for each size."""
    runs = [line.run for bundle in bundles for line in bundle.lines]
    names = settings(runs, facts)
    facet = panel_column(runs, names, by)
    shown = named_by(runs, names, by)
    title = ", ".join(shown)
    of_bundle = dict(
        zip(map(id, bundles), looks(title or "run", [one.value for one in bundles]), strict=True)
    )
    shows_raw = len(runs) <= MOST_TOGETHER
    top = _top(bundles)
    units = {name: unit for run in runs for name, unit in run.metrics.items()}
    unit_y = "nats per token" if y in ("train_loss", "val_loss") else units.get(y, "")
    x_axis = Axis(_named(x), _unit(x), scale="log" if log_x else "fit")
    y_axis = Axis(f"{y} ({unit_y})" if unit_y else y, "loss", scale="fit", top=top)
    values = {value_key(run.value(facet)): run.value(facet) for run in runs} if facet else {"": None}
    panels = []
    for key, value in sorted(values.items(), key=lambda item: natural_order(item[1])):
        inside = [one for one in bundles if facet is None or value_key(one.lines[0].run.value(facet)) == key]
        series = [
            part
            for one in inside
            for part in _series(one, of_bundle[id(one)], shows_raw=shows_raw, is_named=len(bundles) > 1)
        ]
        name = (
            ""
            if facet is None
            else cell(facet, value)
            if facet == "model"
            else f"{facet} {cell(facet, value)}"
        )
        panels.append((name, Chart(f"{y} over {x}", (), series, x_axis, y_axis, legend_title=title)))
    caption = _caption(bundles, top, shows_raw=shows_raw)
    hidden = _hidden(runs, names, [*([facet] if facet else []), *shown])
    return panels, caption + (f" Lines of one colour differ in {', '.join(hidden)}." if hidden else "")


def _hidden(runs: Sequence[Run], names: Sequence[str], shown: Sequence[str]) -> list[str]:
    """Columns in which runs differ that are alike in all that is shown."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(value_key(run.value(name)) for name in shown), []).append(run)
    return [
        name
        for name in names
        if shown and any(len({value_key(run.value(name)) for run in group}) > 1 for group in groups.values())
    ]


def _caption(bundles: Sequence[Bundle], top: float | None, *, shows_raw: bool) -> str:
    lines = [line for bundle in bundles for line in bundle.lines]
    sentences = [f"n = {counted(len(lines), 'run')}."]
    if any(len(bundle.lines) > 1 for bundle in bundles):
        seeds = sorted({len(bundle.lines) for bundle in bundles})
        count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        sentences.append(f"Lines: means of {count} seeds; bands: from the lowest to the highest seed.")
    if any((line.raw != line.mean).any() for line in lines):
        raw = "; thin lines: every step" if shows_raw else ""
        sentences.append(f"Losses of single steps are running means{raw}.")
    if top is not None:
        above = sum(float(line.mean.max()) > top for line in lines)
        sentences.append(f"Cut off at {top:.3g}: {counted(above, 'run')} above it.")
    return " ".join(sentences)


def _series(bundle: Bundle, look: Any, *, shows_raw: bool, is_named: bool) -> list[Series]:
    group = look.group if is_named else ""
    found = [
        Series(line.run.name, line.raw.tolist(), look.color, x=line.x.tolist(), is_thin=True)
        for line in bundle.lines
        if shows_raw and (line.raw != line.mean).any()
    ]
    if len(bundle.lines) == 1:
        line = bundle.lines[0]
        mean = Series(
            bundle.label, line.mean.tolist(), look.color, dash=look.dash, x=line.x.tolist(), group=group
        )
        return [*found, mean]
    x, low, mean, high = (values.tolist() for values in bundle.band())
    return [
        *found,
        Series(f"{bundle.label}, band", (), look.color, "area", x=x, low=low, high=high, group=group),
        Series(bundle.label, mean, look.color, dash=look.dash, x=x, group=group),
    ]


def _line(run: Run, x: str, y: str, smooth: int | None) -> RunCurve | None:
    import numpy as np

    found = curve(run, [x, y])
    known = np.isfinite(found[x]) & np.isfinite(found[y])
    if known.sum() < 2:
        return None
    here, raw = found[x][known], found[y][known]
    chosen = max(1, len(raw) // _MEANS) if "train" in y else 1  # an evaluation is a mean already
    window = smooth if smooth is not None else chosen
    return RunCurve(run, here, raw, smoothed(raw, window) if window > 1 else raw)


def _top(bundles: Sequence[Bundle]) -> float | None:
    """The loss at which runs that exploded are cut off, so that others are not flat; None if none did."""
    import numpy as np

    starts = [float(line.mean[0]) for bundle in bundles for line in bundle.lines]
    highest = max(float(line.mean.max()) for bundle in bundles for line in bundle.lines)
    top = float(np.median(starts)) * 1.1
    return top if highest > 1.3 * top else None


def _label(lines: Sequence[RunCurve], names: Sequence[str]) -> str:
    run = lines[0].run
    named = ", ".join(cell(name, run.value(name)) for name in names) or run.name
    return named + (f" ({len(lines)} seeds)" if len(lines) > 1 else "")


def _value(run: Run, names: Sequence[str]) -> Any:
    """The value of the only column that names runs, else its words."""
    if len(names) == 1:
        return run.value(names[0])
    return ", ".join(cell(name, run.value(name)) for name in names) or run.name


def _unit(x: str) -> Unit:
    return "seconds" if x in ("time", "seconds") else "power" if "flops" in x else "count"


def _named(x: str) -> str:
    return {"time": "time in training", "seconds": "time in training", "flops": "training FLOPs"}.get(x, x)
