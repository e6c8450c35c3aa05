"""Charts of fitted laws: the measured points, the law with its band, and the residuals below.

Lines are solid where there are data and dashed beyond them. Stretches more than ten times beyond the data are
shaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.figures import ramp, shown_number
from analysis.fits.parabola import round_minimum
from analysis.fits.result import FAR
from memory.report.chart import Axis, Chart, LimitLine, Mark, Series, Unit

if TYPE_CHECKING:
    from analysis.fits.chinchilla import Chinchilla
    from analysis.fits.isoflop import Budget, IsoFlop
    from analysis.fits.points import Points
    from analysis.fits.result import Fit, Prediction
    from analysis.panels import Panels

    Array = np.ndarray[Any, np.dtype[np.float64]]

_GRID = 120
_MARKS = "os^Dv<>ph*"
_SAME_SIZE = 0.02
_DASH = (4, 3)
_HEIGHT, _RESIDUAL_HEIGHT = 330, 140
SOLID_AND_DASHED = "Solid: within the data; dashed: beyond."


def power_panels(points: Points, fit: Fit, predictions: Sequence[Prediction]) -> tuple[Panels, str]:
    """(panels, caption) of L over x: a power law of runs, or of the envelope of their curves."""
    low, high = float(points.x.min()), float(points.x.max())
    at = [one.x for one in predictions]
    x = np.geomspace(min([low, *at]) / 1.15, max([high, *at]) * 1.15, _GRID)
    bottom, top = fit.band(x)
    measured = "measured" + (", means over seeds" if max(points.seeds) > 1 else "")
    notes = [
        name if seeds == 1 else f"{name}: mean of {seeds} seeds"
        for name, seeds in zip(points.names, points.seeds, strict=True)
    ]
    series = [
        Series("95% band", (), "blue", "area", x=x.tolist(), low=bottom.tolist(), high=top.tolist(),
               group="95% band"),
        *_law_series(x, fit.law.predict(fit.theta, x), low, high, "blue", fit.formula),
        Series(measured, points.y.tolist(), "red", "points", x=points.x.tolist(), notes=notes,
               group=measured),
    ]  # fmt: skip
    if predictions:
        losses = [one.loss for one in predictions]
        series.append(
            Series("predicted", [loss.value for loss in losses], "ink", "points", x=at, group="predicted",
                   low=[loss.low for loss in losses], high=[loss.high for loss in losses], mark="D")
        )  # fmt: skip
    marks = [
        Mark(begin, f"> {FAR:g} times beyond the data", until=end)
        for begin, end in ((FAR * high, float(x[-1])), (float(x[0]), low / FAR))
        if begin * (1 + 1e-9) * 1.15 < end
    ]
    axis = Axis(_x_label(points.x_name, points.x_unit), _unit(points.x_name), scale="log")
    law = Chart(
        "the law", (), series, axis, Axis(_y_label(points.y_name), "loss", scale="log"), marks=marks,
        height=_HEIGHT,
    )  # fmt: skip
    residuals = [
        Series(
            "residual", (points.y - fit.fitted).tolist(), "red", "points", x=points.x.tolist(), notes=notes
        )
    ]
    caption = (
        f"n = {len(points.x)} points. {SOLID_AND_DASHED} Band: 95% of {len(fit.drawn):,} bootstrap draws of "
        "the curve, not of one more run. Below: measured loss minus law."
    )
    return [("", law), ("", _residuals(residuals, axis))], caption


def chinchilla_panels(
    law: Chinchilla, fit: Fit, x: Array, y: Array, names: Sequence[str], y_name: str
) -> tuple[Panels, str]:
    """(panels, caption) of L over D, a curve a size.

    Args:
        x: (runs, 2), N and D.
        y: Losses of the runs.
        names: Names of N and D.
    """
    groups = _sizes(x[:, 0])
    series, residuals = [], []
    grid = np.geomspace(x[:, 1].min() / 1.15, x[:, 1].max() * 1.15, _GRID)
    for place, members in enumerate(groups):
        look: dict[str, Any] = {
            "color": ramp(place, len(groups)),
            "group": shown_number("parameters", x[members, 0].mean()),
        }
        n, d = float(x[members, 0].mean()), x[members, 1]
        curve = law.predict(fit.theta, np.column_stack([np.full_like(grid, n), grid]))
        series += _law_series(grid, curve, float(d.min()), float(d.max()), look["color"], look["group"])
        points: dict[str, Any] = look | {
            "kind": "points", "x": d.tolist(), "mark": _MARKS[place % len(_MARKS)],
            "name": f"N = {look['group']}",
        }  # fmt: skip
        series.append(Series(y=y[members].tolist(), **points))
        residuals.append(Series(y=(y[members] - fit.fitted[members]).tolist(), **points))
    axis = Axis(names[1], "count", scale="log")
    chart = Chart(
        "the law", (), series, axis, Axis(_y_label(y_name), "loss", scale="log"), height=_HEIGHT,
        legend_title=names[0],
    )  # fmt: skip
    caption = f"n = {len(y)} runs. {SOLID_AND_DASHED} L = {fit.formula}. Below: measured loss minus law."
    return [("", chart), ("", _residuals(residuals, axis))], caption


def isoflop_panels(found: IsoFlop, size: str, x_name: str, y_name: str) -> tuple[Panels, str]:
    """(panels, caption) of L over N, a parabola a budget, and below the best size over compute."""
    known = [budget for budget in found.budgets if budget.best is not None]
    series: list[Series] = []
    for place, budget in enumerate(found.budgets):
        series += _parabola(budget, ramp(place, len(found.budgets)), _MARKS[place % len(_MARKS)])
    if known:
        bests = [budget.best for budget in known if budget.best is not None]
        series.append(
            Series("lowest point", [loss for _, loss in bests], "ink", "points", x=[n for n, _ in bests],
                   mark="*", group="lowest point")
        )  # fmt: skip
    panels = [
        (
            "",
            Chart(
                "losses over sizes", (), series, Axis(size, "count", scale="log"),
                Axis(_y_label(y_name), "loss", scale="log"), height=280, legend_title=x_name,
            ),
        )
    ]  # fmt: skip
    if len(known) > 1:
        panels.append(("", _best_sizes(found, known, size, x_name)))
    count = sum(len(budget.sizes) for budget in found.budgets)
    return panels, f"n = {count} runs. Lines: parabolas of the loss in log {size} around the lowest loss."


def _law_series(x: Array, y: Array, low: float, high: float, color: str, group: str) -> list[Series]:
    """Solid from low to high, dashed where there are no data."""
    within = (x >= low) & (x <= high)
    outside = ~(within & np.roll(within, 1) & np.roll(within, -1))  # up to the solid part
    return [
        Series("law", np.where(within, y, np.nan).tolist(), color, x=x.tolist(), group=group),
        Series("law, beyond the data", np.where(outside, y, np.nan).tolist(), color, dash=_DASH, x=x.tolist(),
               group=group),
    ]  # fmt: skip


def _residuals(series: Sequence[Series], axis: Axis) -> Chart:
    return Chart(
        "residuals", (), series, axis, Axis("measured - law", "number", scale="fit"),
        [LimitLine(0.0, "", "soft")], height=_RESIDUAL_HEIGHT,
    )  # fmt: skip


def _parabola(budget: Budget, color: str, mark: str) -> list[Series]:
    n = np.array([one[0] for one in budget.sizes])
    losses = np.array([one[1] for one in budget.sizes])
    group = shown_number("flops", budget.flops) + ("" if budget.best else " (no lowest point inside)")
    points = Series(group, losses.tolist(), color, "points", x=n.tolist(), group=group, mark=mark)
    if budget.best is None:
        return [Series(group, losses.tolist(), color, dash=(1.5, 2), x=n.tolist(), group=group), points]
    near = round_minimum(losses, 2)
    grid = np.geomspace(n[near][0], n[near][-1], _GRID)
    curve = np.polyval(np.polyfit(np.log(n[near]), losses[near], 2), np.log(grid))
    return [Series(group, curve.tolist(), color, x=grid.tolist(), group=group), points]


def _best_sizes(found: IsoFlop, known: Sequence[Budget], size: str, x_name: str) -> Chart:
    flops = [budget.flops for budget in known]
    best = [budget.best[0] for budget in known if budget.best is not None]
    series = [Series("lowest point", best, "ink", "points", x=flops, mark="*")]
    if found.exponent is not None and found.exponent.value is not None:
        ends = [min(flops), max(flops)]
        name = f"{found.factor:.3g} {x_name}^{found.exponent.value:.3f}"
        series.append(Series(name, [found.best_size(one) for one in ends], x=ends, group=name))
    return Chart(
        "best size", (), series, Axis(x_name, "power", scale="log"),
        Axis(f"best {size}", "count", scale="log"), height=_RESIDUAL_HEIGHT,
    )  # fmt: skip


def _sizes(n: Array) -> list[Array]:
    """Places of the runs of each size, by ascending N."""
    order = np.argsort(n, kind="stable")
    cuts = np.flatnonzero(np.diff(np.log(n[order])) > _SAME_SIZE) + 1
    return list(np.split(order, cuts))


def _unit(name: str) -> Unit:
    return "power" if "flops" in name else "count"


def _x_label(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _y_label(name: str) -> str:
    return f"{name} (nats per token)" if name in ("train_loss", "val_loss") else name
