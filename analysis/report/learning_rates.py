"""Loss over the learning rate, a curve a size, with seeds, divergence, best rates, and their law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.figures import ramp
from analysis.report.families import Families, Family
from experiment_utils.quantities import counted
from memory.report.chart import Axis, Chart, Series
from memory.report.page import Cell, Column, Page

if TYPE_CHECKING:
    from analysis.rates.law import RateLaw

_LABELS = 8
"""Up to this many sizes have their best rate drawn; more would hide the curves."""
_BELOW = 0.04
_DASH = (6, 3)
_LAW_CAPTION = (
    "Points: the best rate of each size. Bars: its 95% interval. Dashed: the law, to twice the largest width."
)


def add_learning_rates(page: Page, found: Families, y: str) -> None:
    """Add the section; nothing if no setup has three rates."""
    drawn = found.with_rates
    if not drawn:
        return
    page.heading("Learning rates")
    page.drawn("plotted", rate_chart(drawn, y).to_json(), caption=_caption(drawn))
    page.table(
        [Column("setup"), Column("best lr", True), Column("95% interval"), Column("rates", True),
         Column("runs", True), Column("diverged at", is_long=True), Column("", is_long=True)],
        [_row(family) for family in drawn],
    )  # fmt: skip
    for setup, law in found.laws.items():
        page.text(f"{setup}: {law.words}" if setup else law.words)
        page.drawn("plotted", _law_chart(found, setup, law).to_json(), caption=_LAW_CAPTION)


def _caption(found: Sequence[Family]) -> str:
    runs = sum(len(rate.losses) + len(rate.lost) for family in found for rate in family.size.rates)
    seeds = any(len(rate.losses) > 1 for family in found for rate in family.size.good)
    return (
        f"n = {counted(runs, 'run')}. "
        + ("Points: means over seeds; rings: single runs. " if seeds else "Points: single runs. ")
        + "Crosses at the top: rates at which runs diverged. Bars at the bottom: 95% intervals of the best "
        "rates, with a point at the best rate."
    )


def edge_words(family: Family) -> str:
    """The words of `Best`; empty if too few rates were tried."""
    return "" if family.best is None else family.best.edge_words


def rate_chart(found: Sequence[Family], y: str) -> Chart:
    """A line a family through the means, a ring a run; below all a bar for the interval of each best rate."""
    series: list[Series] = []
    every = [rate.mean for family in found for rate in family.size.good]
    below = _BELOW * (max(every) - min(every)) if every else 0.0
    bars = 0
    for place, family in enumerate(found):
        look: dict[str, Any] = {"color": ramp(place, len(found)), "group": family.label}
        name, good = family.label, family.size.good
        if any(len(rate.losses) > 1 for rate in good):
            each = [(rate.lr, loss) for rate in good for loss in rate.losses]
            series.append(
                Series(
                    f"{name}, one run",
                    [loss for _, loss in each],
                    kind="rings",
                    x=[lr for lr, _ in each],
                    **look,
                )
            )
        rates, means = [rate.lr for rate in good], [rate.mean for rate in good]
        notes = [f"mean of {len(rate.losses)} runs" if len(rate.losses) > 1 else "one run" for rate in good]
        series += [
            Series(name, means, x=rates, dash=() if place % 2 == 0 else _DASH, **look),
            Series(name, means, kind="points", x=rates, notes=notes, **look),
        ]
        lost = [rate for rate in family.size.rates if rate.lost or rate.half]
        if lost:
            notes = [_lost(len(rate.lost), rate.half) for rate in lost]
            series.append(Series(name, (), kind="lost", x=[rate.lr for rate in lost], notes=notes, **look))
        best = family.best
        if best is not None and best.lr is not None and best.is_inside and len(found) <= _LABELS:
            bars += 1
            at = min(every) - bars * below
            ends = [best.low or best.lr, best.lr, best.high or best.lr]
            notes = ["from here", "best, by the parabola at the lowest loss", "to here"]
            series += [
                Series(f"{name}, best rate", [at] * 3, x=ends, notes=notes, **look),
                Series(f"{name}, best rate", [at], kind="points", x=[best.lr], notes=notes[1:2], **look),
            ]
    label = f"{y} (nats per token)" if y in ("train_loss", "val_loss") else y
    return Chart(
        "loss over the learning rate", (), series, Axis("peak learning rate", "rate", scale="log"),
        Axis(label, "loss", scale="fit"), height=360,
    )  # fmt: skip


def _law_chart(found: Families, setup: str, law: RateLaw) -> Chart:
    inside = [
        family
        for family in found.with_rates
        if family.size.setup == setup and family.best is not None and family.best.is_inside
    ]
    x = [family.size.width or 0.0 for family in inside]
    bests = [family.best for family in inside if family.best is not None]
    widths = [min(x) * (2 * max(x) / min(x)) ** (i / 40) for i in range(41)]
    return Chart(
        "best learning rate over width", (),
        [
            Series("law", [law.at(width) for width in widths], "soft", dash=_DASH, x=widths, group="law"),
            Series("best", [best.lr for best in bests], "blue", "points", x=x, group="best rate of a size",
                   low=[best.low or best.lr for best in bests], high=[best.high or best.lr for best in bests],
                   notes=[family.label for family in inside]),
        ],
        Axis("width (d_model)", "count", scale="log"), Axis("best learning rate", "rate", scale="log"),
        height=260,
    )  # fmt: skip


def _lost(lost: int, half: bool) -> str:
    text = f"{lost} run{'s' * (lost != 1)} diverged" if lost else ""
    return text or ("has half diverged: far above its neighbours" if half else "")


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
