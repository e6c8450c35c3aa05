"""Pictures of fitted laws: what was measured, the law with its band, and below what it leaves.

x is logarithmic, and so are losses, written in plain numbers. Solid lines are of the data; dashed is what the
law says beyond them, and hatched where that is more than ten times beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.fits.parabola import round_minimum
from analysis.fits.result import FAR
from memory.report.colors import BLUE, LIGHT_GREY, VERMILLION
from memory.report.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analysis.fits.chinchilla import Chinchilla
    from analysis.fits.isoflop import Budget, IsoFlop
    from analysis.fits.points import Points
    from analysis.fits.result import Fit, Foretold

    Array = np.ndarray[Any, np.dtype[np.float64]]

_SIZE_INCHES = (6.4, 5.2)
_MANY = 30
"""Of more points marks are small: those of an envelope are nearly a line."""
_GRID = 200
_MARKS = "os^Dv<>ph*"
_TICKS = 7
_SAME_SIZE = 0.02
_TWO_DECADES = 100.0


def power_figure(points: Points, fit: Fit, foretold: Sequence[Foretold], *, title: str) -> Figure:
    """L over x: a power law of runs, or of the envelope of their curves."""
    figure, axes, below = _two_panels()
    low, high = float(points.x.min()), float(points.x.max())
    at = [one.x for one in foretold]
    x = np.geomspace(min([low, *at]) / 1.15, max([high, *at]) * 1.15, _GRID)
    bottom, top = fit.band(x)
    axes.fill_between(
        x, bottom, top, color=BLUE, alpha=0.22, linewidth=0, label="95% of the curve", gid="band", zorder=1
    )
    _curve(axes, x, fit.law.predict(fit.theta, x), low, high, BLUE, fit.formula)
    _measured(axes, points.x, points.y, VERMILLION, "o", "measured" + _seeds(points))
    for number, one in enumerate(foretold):
        value = one.loss.value or 0.0
        sides = [[max(0.0, value - one.loss.low)], [max(0.0, one.loss.high - value)]]
        axes.errorbar(
            [one.x], [value], sides, fmt="D", markersize=5, color="black", markerfacecolor="white",
            capsize=3, linewidth=1, zorder=4, label="foretold" if number == 0 else None,
        )  # fmt: skip
    _hatch_far(axes, x, low, high)
    _residuals(below, points.x, points.y - fit.fitted, VERMILLION, "o")
    _name(axes, below, title, points.y_name, f"{points.x_name} ({points.x_unit})", x)
    _log_losses(axes, [*points.y.tolist(), *bottom.tolist(), *top.tolist()])
    axes.legend(loc="upper right", frameon=True, framealpha=1, edgecolor="none")  # readable on hatching
    return figure


def chinchilla_figure(
    law: Chinchilla, fit: Fit, x: Array, y: Array, names: Sequence[str], y_name: str, *, title: str
) -> Figure:
    """L over D, a curve a size. x: (runs, 2), N and D. names: of N and D."""
    figure, axes, below = _two_panels()
    groups = _sizes(x[:, 0])
    shown: list[float] = y.tolist()
    for place, members in enumerate(groups):
        color, mark = _color(place, len(groups)), _MARKS[place % len(_MARKS)]
        n, d, here = float(x[members, 0].mean()), x[members, 1], y[members]
        grid = np.geomspace(x[:, 1].min() / 1.15, x[:, 1].max() * 1.15, _GRID)
        both = np.column_stack([np.full(_GRID, n), grid])
        bottom, top = fit.band(both)
        axes.fill_between(grid, bottom, top, color=color, alpha=0.18, linewidth=0, zorder=1)
        curve = law.predict(fit.theta, both)
        _curve(axes, grid, curve, float(d.min()), float(d.max()), color, None)
        _measured(axes, d, here, color, mark, f"{names[0]} {n:.3g}" if len(groups) <= len(_MARKS) else None)
        _residuals(below, d, here - fit.fitted[members], color, mark)
        shown += [*bottom.tolist(), *top.tolist()]
    _name(axes, below, f"{title}: {fit.formula}", y_name, names[1], x[:, 1])
    _log_losses(axes, shown)
    if len(groups) <= len(_MARKS):
        axes.legend(loc="upper right", ncols=2)
    return figure


def isoflop_figure(found: IsoFlop, size: str, x_name: str, y_name: str, *, title: str) -> Figure:
    """L over N, a parabola a budget, and below how its lowest point moves with compute."""
    known = [budget for budget in found.budgets if budget.best is not None]
    figure = new_figure(_SIZE_INCHES)
    panels = figure.subplots(2, 1, height_ratios=(2, 1)) if len(known) > 1 else [figure.subplots()]
    axes = panels[0]
    for place, budget in enumerate(found.budgets):
        color, mark = _color(place, len(found.budgets)), _MARKS[place % len(_MARKS)]
        _parabola(axes, budget, color, mark, f"{x_name} {budget.flops:.3g}")
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis, np.array([n for budget in found.budgets for n, _, _ in budget.sizes]))
    _log_losses(axes, [loss for budget in found.budgets for _, loss, _ in budget.sizes])
    axes.set(title=title, xlabel=size, ylabel=y_name)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), title="a star: the\nlowest point", title_fontsize=8.5
    )
    if len(known) > 1:
        _best_sizes(panels[1], found, known, size, x_name)
    return figure


def _two_panels() -> tuple[Figure, Axes, Axes]:
    figure = new_figure(_SIZE_INCHES)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    return figure, axes, below


def _curve(axes: Axes, x: Array, y: Array, low: float, high: float, color: Any, label: str | None) -> None:
    """Solid from low to high, dashed where there are no data."""
    within = (x >= low) & (x <= high)
    axes.plot(x, np.where(within, y, np.nan), color=color, linewidth=1.6, label=label, zorder=2)
    outside = ~(within & np.roll(within, 1) & np.roll(within, -1))  # up to the solid part
    axes.plot(x, np.where(outside, y, np.nan), color=color, linewidth=1.2, linestyle=(0, (4, 3)), zorder=2)


def _measured(axes: Axes, x: Array, y: Array, color: Any, mark: str, label: str | None) -> None:
    small = len(x) > _MANY
    axes.plot(
        x, y, mark, color=color, markersize=3 if small else 6, markeredgecolor="black",
        markeredgewidth=0.3 if small else 0.7, label=label, zorder=3,
    )  # fmt: skip


def _residuals(below: Axes, x: Array, left: Array, color: Any, mark: str) -> None:
    below.axhline(0, color="black", linewidth=0.8)
    if len(x) <= _MANY:
        below.vlines(x, 0, left, color=color, linewidth=1)
    _measured(below, x, left, color, mark, None)
    reach = 1.25 * max(float(np.abs(left).max()), abs(below.get_ylim()[1]) / 1.25, 1e-9)
    below.set_ylim(-reach, reach)


def _hatch_far(axes: Axes, x: Array, low: float, high: float) -> None:
    """Where the law may not hold: more than ten times beyond the data, on either side."""
    for begin, end in ((FAR * high, float(x[-1])), (float(x[0]), low / FAR)):
        if begin * (1 + 1e-9) * 1.15 < end:
            axes.axvspan(
                begin, end, facecolor="none", edgecolor=LIGHT_GREY, hatch="///", linewidth=0, zorder=0,
                label=f"more than {FAR:g} times beyond the data",
            )  # fmt: skip


def _name(axes: Axes, below: Axes, title: str, y_name: str, x_name: str, x: Array) -> None:
    axes.set(title=title, ylabel=y_name)
    below.set(xlabel=x_name, ylabel="measured - law")
    below.set_xscale("log")
    _plain_ticks(below.xaxis, x)


def _log_losses(axes: Axes, values: Sequence[float]) -> None:
    """By their logs, with ticks at round numbers: a decade of a loss has one power of ten, or none."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    known = [value for value in values if np.isfinite(value) and value > 0]
    low, high = min(known), max(known)
    axes.set_yscale("log")
    axes.set_ylim(low / (high / low) ** 0.05, high * (high / low) ** 0.05)
    ticks = MaxNLocator(_TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick > 0]))
    axes.yaxis.set_minor_locator(NullLocator())
    _plain_ticks(axes.yaxis)


def _plain_ticks(axis: Any, values: Array | None = None) -> None:
    """Plain numbers. values: of a logarithmic axis that chooses its places; at least some have one."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if values is not None:
        is_short = float(values.max()) < _TWO_DECADES * float(values.min())
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def _seeds(points: Points) -> str:
    return ", means over seeds" if max(points.seeds) > 1 else ""


def _sizes(n: Array) -> list[Array]:
    """Places of the runs of each size, by ascending N."""
    order = np.argsort(n, kind="stable")
    cuts = np.flatnonzero(np.diff(np.log(n[order])) > _SAME_SIZE) + 1
    return list(np.split(order, cuts))


def _color(place: int, of: int) -> Any:
    """Of viridis, which rises in lightness: in grey it does too."""
    from matplotlib import colormaps

    return colormaps["viridis"](0.92 * place / max(1, of - 1))


def _parabola(axes: Axes, budget: Budget, color: Any, mark: str, label: str) -> None:
    n = np.array([one[0] for one in budget.sizes])
    losses = np.array([one[1] for one in budget.sizes])
    if budget.best is None:
        axes.plot(n, losses, color=color, linewidth=0.8, linestyle=":", zorder=2)
        label += " (no lowest point inside)"
    else:
        near = round_minimum(losses, 2)
        grid = np.geomspace(n[near][0], n[near][-1], _GRID)
        curve = np.polyval(np.polyfit(np.log(n[near]), losses[near], 2), np.log(grid))
        axes.plot(grid, curve, color=color, linewidth=1.4, zorder=2)
        axes.plot(*budget.best, "*", color="black", markersize=9, zorder=4)
    _measured(axes, n, losses, color, mark, label)


def _best_sizes(below: Axes, found: IsoFlop, known: Sequence[Budget], size: str, x_name: str) -> None:
    flops = np.array([budget.flops for budget in known])
    best = np.array([budget.best[0] for budget in known if budget.best is not None])
    below.loglog(flops, best, "*", color="black", markersize=9)
    grid = np.geomspace(flops.min(), flops.max(), 2)
    if found.exponent is not None and found.exponent.value is not None:
        below.loglog(
            grid, [found.best_size(one) for one in grid.tolist()], color=BLUE, linewidth=1.4,
            label=f"{found.factor:.3g} {x_name}^{found.exponent.value:.3f}",
        )  # fmt: skip
        below.legend(loc="upper left")
    below.set(xlabel=x_name, ylabel=f"best {size}")
    _plain_ticks(below.xaxis, flops)
    _plain_ticks(below.yaxis, best)
