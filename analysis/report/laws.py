"""Scaling of the loss: the power law through the best runs of each size, its band and its residuals."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.reading import Run, Study
from analysis.report.families import Families, Family
from experiment_utils.errors import UserError
from memory.report.page import Page

if TYPE_CHECKING:
    from analysis.fits.points import Points
    from analysis.fits.result import Fit

DRAWS = 100
"""Draws of the bootstrap, fewer than those of `fit`, so that the page is written in seconds."""
_BEYOND = 10.0
_LEAST = 4
_HEIGHT = 320
_TITLES = ("The law, to ten times the data", "Residuals")


@dataclass(frozen=True)
class StudyLaw:
    """A fit and its points."""

    points: Points
    fit: Fit
    open: Sequence[str] = ()
    """Sizes whose best rate may be beyond the rates that were tried."""

    @property
    def words(self) -> list[str]:
        """The formula with its intervals, and whether E is in the data."""
        fit, alpha = self.fit, self.fit.values["alpha"]
        formula = f"{self.points.y_name} = {fit.formula}"
        between = f"alpha {alpha.low:.3g} to {alpha.high:.3g}"
        lines = [
            f"{formula} ({between}), R^2 {fit.r2.value:.4f} over {len(self.points.x)} sizes; x is "
            f"{self.points.x_name}: {self.points.x_unit}"
        ]
        low, high = fit.e_range
        if not fit.identified:
            lines.append(f"E is not identified by these data: between {low:.3g} and {high:.3g}")
        else:
            lines.append(f"E lies between {low:.4g} and {high:.4g}")
        if self.open:
            lines.append(
                f"Not at their best rate, it may be: {', '.join(self.open)}; their points may lie too high"
            )
        return lines


def law_of(study: Study, found: Families, x: str | None, y: str) -> tuple[StudyLaw | None, str | None]:
    """(the law, None), or (None, why) if there are enough sizes but no law describes them."""
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
    return StudyLaw(points, fit, _open(found.each)), None


def _open(found: Sequence[Family]) -> list[str]:
    """Sizes with several rates whose best is not between them. A size with one rate asks for no other."""
    return [
        family.label
        for family in found
        if len(family.size.rates) + len(family.size.pending) > 1
        and (family.best is None or family.best.edge is not None)
    ]


def best_of_each(found: Sequence[Family]) -> list[Run]:
    """Runs at the best rate of each size, all seeds: other rates are no points of a law."""
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


def add_law(page: Page, law: StudyLaw | None, given: str) -> None:
    """Add the section; nothing without a law. given: the study's runs as typed."""
    if law is None:
        return
    import numpy as np

    from analysis.fit_plot import power_panels

    points, fit = law.points, law.fit
    ten_times = fit.predict(np.array([_BEYOND * float(points.x.max())]), points.x)
    panels, caption = power_panels(points, fit, [ten_times])
    page.heading("Scaling", "the best rate of each size")
    for line in law.words:
        page.text(line)
    charts = [replace(chart, height=_HEIGHT).to_json() for _, chart in panels]
    page.drawings("plotted", list(zip(_TITLES, charts, strict=True)))
    page.text(caption, "note")
    x, y = (shlex.quote(name) for name in (points.x_name, points.y_name))
    page.code(f"python -m analysis fit {given} --x {x} --y {y} -o law.png")


def _is(value: float | None, lr: float) -> bool:
    return value is not None and abs(value - lr) <= 1e-6 * lr
