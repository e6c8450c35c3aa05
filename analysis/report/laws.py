"""How the loss scales: the power law through the best runs of each size, its band, what it leaves."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.reading import Run, Study
from analysis.report.plot import Axis, Line, Plot, Series
from analysis.report.setups import Families, Family
from experiment_utils.errors import UserError
from memory.report.page import Page

if TYPE_CHECKING:
    from analysis.fits.points import Points
    from analysis.fits.result import Fit

DRAWS = 100
"""Of the bootstrap: fewer than `fit` takes, so that the page is there in seconds."""
_BEYOND = 10.0
_LEAST = 4


@dataclass(frozen=True)
class Law:
    """A fit and the points that it is of. open: sizes whose best rate may lie beyond what was tried."""

    points: Points
    fit: Fit
    open: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        """The formula with its intervals, and whether E is in the data."""
        fit, alpha = self.fit, self.fit.values["alpha"]
        formula = f"{self.points.y_name} = {fit.formula}"
        between = f"alpha {alpha.low:.3g} to {alpha.high:.3g}"
        told = [
            f"{formula} ({between}), R^2 {fit.r2.value:.4f} over {len(self.points.x)} sizes; x is "
            f"{self.points.x_name}: {self.points.x_unit}"
        ]
        low, high = fit.e_range
        if not fit.identified:
            told.append(f"E is not identified by these data: between {low:.3g} and {high:.3g}")
        else:
            told.append(f"E lies between {low:.4g} and {high:.4g}")
        if self.open:
            told.append(
                f"Not at their best rate, it may be: {', '.join(self.open)}; their points may lie too high"
            )
        return told


def law_of(study: Study, found: Families, x: str | None, y: str) -> tuple[Law | None, str | None]:
    """(the law, None); (None, why) where there are sizes enough, but no law through them."""
    over = x or ("flops" if study.is_ours else None)
    if over is None:
        return None, None
    chosen = best_of_each(found.each) if found.each else list(study.once())
    if len({run.number(over) for run in chosen}) < _LEAST:
        return None, None
    from analysis.fits.points import check_enough, points_of
    from analysis.fits.result import fit_power

    some = replace(study, runs=chosen)
    try:
        points = points_of(some, over, y)
        check_enough(points, _LEAST, some)
        fit = fit_power(points, draws=DRAWS)
    except UserError as error:
        return None, f"No law: {str(error).removeprefix(f'{study.path}: ')}"
    return Law(points, fit, _open(found.each)), None


def _open(found: Sequence[Family]) -> list[str]:
    """Sizes of one rate ask for none better; of several the best should lie among them."""
    return [
        family.label
        for family in found
        if len(family.size.rates) + len(family.size.pending) > 1
        and (family.best is None or family.best.edge is not None)
    ]


def best_of_each(found: Sequence[Family]) -> list[Run]:
    """Of each size the runs at its best rate, all seeds: other rates are no points of a law."""
    lowest: dict[tuple[str, str], tuple[float, list[Run]]] = {}
    for family in found:
        if not family.size.good:
            continue
        rate = min(family.size.good, key=lambda rate: rate.mean)
        runs = [run for run in family.size.runs if run.counts and _is(run.number("lr"), rate.lr)]
        key = (family.size.model, family.size.budget)
        if key not in lowest or rate.mean < lowest[key][0]:
            lowest[key] = (rate.mean, runs)
    return [run for _, runs in lowest.values() for run in runs]


def add_law(page: Page, law: Law | None, given: str) -> None:
    """Nothing without one. given: the study's runs, as they are typed."""
    if law is None:
        return
    page.heading("Scaling", f"the best rate of each size; 95% band of {DRAWS} draws")
    for line in law.words:
        page.text(line)
    page.drawings("plotted", [("The law, to ten times the data", _curve(law).to_json()),
                              ("What it leaves", _residuals(law).to_json())])  # fmt: skip
    x, y = (shlex.quote(name) for name in (law.points.x_name, law.points.y_name))
    page.code(f"python -m analysis fit {given} --x {x} --y {y}")


def _curve(law: Law) -> Plot:
    import numpy as np

    points, fit = law.points, law.fit
    x = np.geomspace(points.x.min() / 1.5, points.x.max() * _BEYOND, 60)
    low, high = fit.band(x)
    curve, at = fit.law.predict(fit.theta, x), x.tolist()
    notes = [_name(name, seeds) for name, seeds in zip(points.names, points.seeds, strict=True)]
    return Plot(
        "the scaling law", Axis(points.x_name, "power", log=True), Axis(points.y_name, "loss", log=True),
        [
            Series("95% band", at, (), "area", "blue", "95% band", low.tolist(), high.tolist()),
            Series("law", at, curve.tolist(), "line", "blue", "law"),
            Series("measured", points.x.tolist(), points.y.tolist(), "points", "red", "measured",
                   notes=notes),
        ],
        [Line("x", float(points.x.max()), "data end here")], height=320,
    )  # fmt: skip


def _residuals(law: Law) -> Plot:
    points, fit = law.points, law.fit
    left = (points.y - fit.fitted).tolist()
    notes = [_name(name, seeds) for name, seeds in zip(points.names, points.seeds, strict=True)]
    return Plot(
        "measured less the law", Axis(points.x_name, "power", log=True), Axis("measured - law", "number"),
        [Series("residual", points.x.tolist(), left, "points", "red", notes=notes)], [Line("y", 0.0)],
        height=320,
    )  # fmt: skip


def _name(name: str, seeds: int) -> str:
    return name if seeds == 1 else f"{name}: mean"


def _is(value: float | None, lr: float) -> bool:
    return value is not None and abs(value - lr) <= 1e-6 * lr
