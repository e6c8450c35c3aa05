"""The page of a study that goes on: as it is now; live.js asks for what changes."""

from __future__ import annotations

from pathlib import Path

from analysis.live.follow import Follower
from analysis.report.curves import HOW_TO_READ, NOT_SAID, figure_of
from analysis.report.page import new_page
from analysis.report.runs import HINT
from experiment_utils.errors import UserError

_OWN = Path(__file__).parent / "live.js"


def page_of(follower: Follower) -> str:
    """Raises UserError: the study cannot be read."""
    follower.refresh()
    study = follower.study
    if study is None:
        raise UserError("the study was never read")
    figure = figure_of(
        follower.curves(), follower.colors(), is_ours=study.is_ours, x=follower.x, y=follower.y,
        metrics=study.metrics,
    )  # fmt: skip
    told = {"version": follower.version, "every_s": follower.every_s}
    page = new_page(
        study, f"python -m analysis live {study.path}", own=_OWN.read_text(encoding="utf-8"),
        may_fetch=True,
    )  # fmt: skip
    page.drawn("live", told)
    page.heading("Runs")
    page.drawn("filter", HINT)
    page.table(follower.columns, [one.cells for one in follower.runs()])
    page.heading("Curves")
    if study.is_ours or (follower.x and follower.y):
        page.drawn("curves", figure, caption=HOW_TO_READ)
    else:
        page.text(NOT_SAID)
    return page.html()
