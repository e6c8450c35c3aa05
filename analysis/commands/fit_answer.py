"""A fit as JSON and as text for a terminal."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.commands.shared import as_typed, notes_below
from analysis.reading.study import versions_of
from experiment_utils.display import table
from experiment_utils.quantities import counted

if TYPE_CHECKING:
    from analysis.fits.points import Points
    from analysis.fits.result import Fit, Prediction
    from analysis.fits.uncertainty import Interval
    from analysis.reading.study import Study


def as_json(
    study: Study,
    points: Points,
    fit: Fit,
    predictions: list[Prediction],
    more: dict[str, Any],
) -> dict[str, Any]:
    values = {name: found.to_json() for name, found in fit.values.items()}
    low, high = fit.e_range
    if fit.law.fixed_e is None:
        values["E"] = {"value": fit.values["E"].value if fit.identified else None, "low": low, "high": high}
    return {
        "version": 1, "study": study.path, **more, "x": points.x_name, "x_unit": points.x_unit,
        "y": points.y_name,
        **values, "r2": fit.r2.to_json(), "identified": fit.identified, "fixed_E": fit.law.fixed_e,
        "huber": _robust(fit) or None, "draws": len(fit.drawn), "points": [
            {"run": name, **where, "y": float(y), "fitted": float(fitted),
             "residual": float(y - fitted), "seeds": seeds, **({"code": code} if code else {})}
            for name, where, y, fitted, seeds, code in zip(
                points.names, _where(points), points.y, fit.fitted, points.seeds, _codes(points), strict=True
            )
        ],
        "without": [{"run": left.name, **left.values, "error": left.error} for left in fit.left],
        "foretold": [
            {"x": one.x, **one.loss.to_json(), "times_beyond_data": one.times, "far": one.is_far}
            for one in predictions
        ],
        "seed_deviation": points.seed_deviation, "left_out": points.left_out,
        "other_settings": [*points.others], "notes": [*study.notes(), *points.notes],
        "code": versions_of(study.runs).to_json(),
    }  # fmt: skip


def _codes(points: Points) -> Sequence[str]:
    return points.codes or [""] * len(points.names)


def _where(points: Points) -> list[dict[str, float]]:
    """Values of x by name, for each point."""
    if points.sizes_and_tokens is None:
        return [{"x": float(x)} for x in points.x]
    return [{"N": float(n), "D": float(d)} for n, d in points.sizes_and_tokens]


def as_lines(
    study: Study,
    points: Points,
    fit: Fit,
    predictions: list[Prediction],
    formula: str,
    options: argparse.Namespace,
    *,
    count: str | None = None,
    more: Sequence[str] = (),
) -> list[str]:
    """The lines. count: number of points, if these are not sizes. more: lines at the end."""
    import numpy as np

    residuals = points.y - fit.fitted
    freedom = len(points.y) - fit.law.free
    deviation = math.sqrt(float((residuals**2).sum()) / freedom) if freedom > 0 else 0.0
    lines = [
        f"{study.path}: {count or counted(len(points.y), 'size')}, L = {points.y_name}, x = {points.x_name} "
        f"({points.x_unit})",
        formula, "",
        f"{'':<8}{'value':>12}   95% interval (bootstrap, {len(fit.drawn):,} draws)",
        *(_line(name, found, fit) for name, found in fit.values.items()),
        f"{'R^2':<8}{fit.r2.value:>12.5f}",
    ]  # fmt: skip
    if fit.law.fixed_e is None and fit.identified:
        if fit.is_profiled:
            lines.append(f"E by its profile: {fit.e_range[0]:.3f} to {fit.e_range[1]:.3f}")
    elif fit.law.fixed_e is None:
        low, high = fit.e_range
        lines.append(
            f"E is not identified by these data: between {low:.2g} and {high:.2g}; the rest goes with it"
        )
    if fit.robust:
        values_text = ", ".join(
            f"{name} {'?' if value is None else f'{value:.5g}'}" for name, value in _robust(fit).items()
        )
        lines.append(f"Huber's loss of log L instead: {values_text}")
    if fit.left and fit.law.fixed_e is None:
        least = min(fit.left, key=lambda left: left.values["E"])
        most = max(fit.left, key=lambda left: left.values["E"])
        ends = f"{least.values['E']:.3f}", f"{most.values['E']:.3f}"
        span = f"from {ends[0]} (without {least.name}) to {ends[1]} (without {most.name})"
        lines.append(f"leaving one out: E {span if ends[0] != ends[1] else f'stays at {ends[0]}'}")
    worst = int(np.argmax(np.abs(residuals)))
    lines.append(
        f"residuals: s.d. {deviation:.4f}, the largest {residuals[worst]:+.4f} ({points.names[worst]})"
        + (
            f"; seeds of one size: s.d. {points.seed_deviation:.4f}"
            if points.seed_deviation is not None
            else ""
        )
    )
    for one in predictions:
        between = f"{_loss(one.loss.low)} to {_loss(one.loss.high)}"
        lines.append(f"at x = {one.x:.4g}: {_loss(one.loss.value)} ({between})")
        if one.is_far:
            lines.append(f"  warning: {one.times:.3g} times beyond the data: the law may not hold so far")
    if len(points.y) <= 24:
        lines += ["", *_table(points, fit)]
    lines += ["", *notes_below([*study.notes(), *points.notes], points.left_out), *more]
    return [*lines, f"next: python -m analysis table {as_typed(options)}   (what each run is)"]


def _robust(fit: Fit) -> dict[str, float | None]:
    """Values by Huber's loss; E is None if the data do not identify it."""
    unknown = {"E": None} if fit.robust and not fit.identified else {}
    return {**fit.robust, **unknown}


def _loss(value: float | None) -> str:
    return f"{value:.4f}" if value is not None and abs(value) < 1e4 else f"{value or 0:.3g}"


def _line(name: str, found: Interval, fit: Fit) -> str:
    if name == "E" and fit.law.fixed_e is not None:
        return f"{name:<8}{found.value:>12.6g}   fixed"
    if name == "E" and not fit.identified:
        low, high = fit.e_range
        return f"{name:<8}{'?':>12}   {low:.4g} to {high:.4g}"
    return f"{name:<8}{found.value:>12.5g}   {found.low:.4g} to {found.high:.4g}"


def _table(points: Points, fit: Fit) -> list[str]:
    errors = {left.name: left.error for left in fit.left}
    places = _where(points)
    of = "size" if points.sizes_and_tokens is None else "run"
    titles = [of, *places[0], "L", "fitted", "residual", "error if left out", "code" if points.codes else ""]
    rows = [
        (
            name,
            *(f"{value:.4g}" for value in place.values()),
            *(f"{y:.4f}", f"{fitted:.4f}", f"{y - fitted:+.4f}"),
            f"{errors[name]:+.4f}" if name in errors else "-",
            code,
        )
        for name, place, y, fitted, code in zip(
            points.names, places, points.y, fit.fitted, _codes(points), strict=True
        )
    ]
    return table(titles, rows, right=range(1, len(titles) - 1))
