"""Loss over the learning rate, a curve a size: seeds, those that diverged, where the best one lies."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report.plot import Axis, Plot, Series
from analysis.report.setups import Family
from memory.report.page import Cell, Column, Page

_LEAST = 3
HUES = tuple(f"ramp{i}" for i in range(9))


def worth_drawing(found: Sequence[Family]) -> list[Family]:
    """Those with three rates or more."""
    return [family for family in found if len(family.rates) >= _LEAST]


def add_learning_rates(page: Page, found: Sequence[Family], y: str) -> None:
    """Nothing where no setup has three of them."""
    drawn = worth_drawing(found)
    if not drawn:
        return
    page.heading("Learning rates", "means over seeds; a cross is a rate at which runs diverged")
    page.drawn("plotted", rate_plot(drawn, y).to_json())
    page.table(
        [Column("setup"), Column("lowest at", True), Column(y, True), Column("rates tried", True),
         Column("runs", True), Column("diverged", True), Column("", is_long=True)],
        [_row(family) for family in drawn],
    )  # fmt: skip


def rate_plot(found: Sequence[Family], y: str) -> Plot:
    """A line a family through the means; a ring a run."""
    series: list[Series] = []
    for place, family in enumerate(found):
        hue = HUES[round(place * (len(HUES) - 1) / max(1, len(found) - 1))]
        known = [rate for rate in family.rates if rate.losses]
        several = any(len(rate.losses) > 1 for rate in known)
        if several:
            each = [(rate.lr, loss) for rate in known for loss in rate.losses]
            series.append(
                Series(f"{family.label}, a seed each", [lr for lr, _ in each], [loss for _, loss in each],
                       "rings", hue, family.label)
            )  # fmt: skip
        means = [rate.mean for rate in known]
        rates = [rate.lr for rate in known]
        series.append(Series(family.label, rates, means, "line", hue, family.label))
        notes = [f"{len(rate.losses)} runs" if len(rate.losses) != 1 else rate.runs[0].name for rate in known]
        series.append(Series(family.label, rates, means, "points", hue, family.label, notes=notes))
        lost = [rate for rate in family.rates if rate.lost]
        if lost:
            words = [f"{rate.lost} of {len(rate.runs)} diverged" for rate in lost]
            series.append(
                Series(family.label, [rate.lr for rate in lost], kind="lost", color=hue, group=family.label,
                       notes=words)
            )  # fmt: skip
    return Plot(
        "loss over the learning rate", Axis("peak learning rate", "rate", log=True), Axis(y, "loss"),
        series, height=340,
    )  # fmt: skip


def _row(family: Family) -> list[str | Cell]:
    best = family.best
    runs = sum(len(rate.runs) for rate in family.rates)
    lost = sum(rate.lost for rate in family.rates)
    return [
        family.label,
        Cell("-" if best is None else f"{best.lr:.4g}", None if best is None else best.lr),
        Cell("-" if best is None else f"{best.mean:.4f}", None if best is None else best.mean),
        Cell(str(len(family.rates)), len(family.rates)),
        Cell(str(runs), runs),
        Cell(str(lost), lost, tone="bad" if lost else ""),
        "" if not family.is_at_edge else "the lowest is at the edge of the rates tried: try more beyond it",
    ]
