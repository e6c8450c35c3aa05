"""Loss over the learning rate, a curve a size: seeds, those that diverged, where the best lies, the law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.report.plot import Axis, Plot, Series
from analysis.report.setups import Families, Family
from memory.report.page import Cell, Column, Page

if TYPE_CHECKING:
    from analysis.rates.law import RateLaw

_HUES = 9
_LABELS = 12
"""So many sizes have their best rate drawn; of more they would hide the curves."""
_BELOW = 0.03


def add_learning_rates(page: Page, found: Families, y: str) -> None:
    """Nothing where no setup has three of them."""
    drawn = found.with_rates
    if not drawn:
        return
    page.heading("Learning rates", "means over seeds; a cross is a rate at which runs diverged")
    page.drawn("plotted", rate_plot(drawn, y).to_json())
    page.table(
        [Column("setup"), Column("best lr", True), Column("95% interval"), Column("rates", True),
         Column("runs", True), Column("diverged at", is_long=True), Column("", is_long=True)],
        [_row(family) for family in drawn],
    )  # fmt: skip
    for setup, law in found.laws.items():
        page.text(f"{setup}: {law.words}" if setup else law.words)
        page.drawn("plotted", _law_plot(found, setup, law).to_json())


def edge_words(family: Family) -> str:
    """As of `Best`; nothing where too few rates were tried."""
    return "" if family.best is None else family.best.edge_words


def rate_plot(found: Sequence[Family], y: str) -> Plot:
    """A line a family through the means, a ring a run; below each line the best rate with its interval."""
    series: list[Series] = []
    means = [rate.mean for family in found for rate in family.size.good]
    below = _BELOW * (max(means) - min(means)) if means else 0.0
    for place, family in enumerate(found):
        hue, name = _hue(place, len(found)), family.label
        good = family.size.good
        if any(len(rate.losses) > 1 for rate in good):
            each = [(rate.lr, loss) for rate in good for loss in rate.losses]
            one = f"{name}, one run"
            rates, losses = [lr for lr, _ in each], [loss for _, loss in each]
            series.append(Series(one, rates, losses, "rings", hue, name))
        rates, means = [rate.lr for rate in good], [rate.mean for rate in good]
        series.append(Series(name, rates, means, "line", hue, name))
        notes = [f"mean of {len(rate.losses)} runs" if len(rate.losses) > 1 else "one run" for rate in good]
        series.append(Series(name, rates, means, "points", hue, name, notes=notes))
        lost = [rate for rate in family.size.rates if rate.lost or rate.half]
        if lost:
            words = [_lost(len(rate.lost), rate.half) for rate in lost]
            series.append(Series(name, [rate.lr for rate in lost], (), "lost", hue, name, notes=words))
        best = family.best
        if best is not None and best.lr is not None and best.is_inside and len(found) <= _LABELS:
            at = min(rate.mean for rate in good) - below
            told = [best.low or best.lr, best.lr, best.high or best.lr]
            words = ["from here", "best, by the parabola at the lowest loss", "to here"]
            series.append(Series(f"{name}, best rate", told, [at] * 3, "line", hue, name, notes=words))
            series.append(
                Series(f"{name}, best rate", [best.lr], [at], "points", hue, name, notes=words[1:2])
            )
    return Plot(
        "loss over the learning rate", Axis("peak learning rate", "rate", log=True), Axis(y, "loss"), series,
        height=360,
    )  # fmt: skip


def _law_plot(found: Families, setup: str, law: RateLaw) -> Plot:
    inside = [
        family
        for family in found.with_rates
        if family.size.setup == setup and family.best is not None and family.best.is_inside
    ]
    x = [family.size.width or 0.0 for family in inside]
    bests = [family.best for family in inside if family.best is not None]
    widths = [min(x) * (2 * max(x) / min(x)) ** (i / 40) for i in range(41)]
    return Plot(
        "best learning rate over width", Axis("width", "count", log=True), Axis("best lr", "rate", log=True),
        [
            Series("law", widths, [law.at(width) for width in widths], "dash", "grey", "law"),
            Series("best", x, [best.lr for best in bests], "points", "blue", "best of a size",
                   [best.low for best in bests], [best.high for best in bests],
                   [family.label for family in inside]),
        ],
        height=260,
    )  # fmt: skip


def _hue(place: int, of: int) -> str:
    return f"ramp{round(place * (_HUES - 1) / max(1, of - 1))}"


def _lost(lost: int, half: bool) -> str:
    told = f"{lost} run{'s' * (lost != 1)} diverged" if lost else ""
    return told or ("has half diverged: far above its neighbours" if half else "")


def _row(family: Family) -> list[str | Cell]:
    best, size = family.best, family.size
    lr = None if best is None else best.lr
    runs = sum(len(rate.losses) + len(rate.lost) for rate in size.rates)
    lost = ", ".join(size.diverged_at)
    between = "-" if best is None or lr is None else best.interval
    return [
        Cell(family.label, size.width),
        Cell("-" if lr is None else f"{lr:.4g}", lr),
        between,
        Cell(str(len(size.rates)), len(size.rates)),
        Cell(str(runs), runs),
        Cell(lost or "-", lost, tone="bad" if lost else ""),
        edge_words(family),
    ]
