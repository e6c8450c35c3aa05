"""The comparison of two runs, as a page and as text."""

from __future__ import annotations

from collections.abc import Callable

from memory.record.stage_line import duration
from memory.report.data.comparison import Comparison, Pair, StagePair
from memory.report.page import Cell, Column, Fact, Page
from memory.report.plain_text import PlainText
from memory.report.run_charts import PART_NAMES, both_over_time, on_scale, over_time
from memory.report.run_report import amount, change


def page_of(found: Comparison, *, command: str) -> str:
    """The page. command: the one that wrote it, for the footer."""
    names = [f"{which}: {title}" for which, title in zip("AB", _titles(found), strict=True)]
    page = Page(
        "Memory of two runs", subtitle=" · ".join(names),
        footer=f"Written by {command}. Units are powers of 1024.",
    )  # fmt: skip
    page.facts(_facts(found))
    page.text(growth(found))
    page.heading("Both over time")
    both = both_over_time(found.tracks, group="both")
    page.figure(both)
    for name, track in zip(names, found.tracks, strict=True):
        page.heading(name)
        page.figure(on_scale(over_time(track, group="both"), both.ends, both.highest, height=230))
    _add_tables(page, found)
    for history in (found.a, found.b):
        if history.notes:
            page.heading(f"Notes on {history.name}")
            page.items(history.notes)
    return page.html()


def lines_of(found: Comparison) -> list[str]:
    """The comparison as lines of text."""
    a, b = _titles(found)
    text = PlainText(f"A  {a}")
    text.lines += PlainText(f"B  {b}").lines
    text.heading(growth(found))
    _add_tables(text, found)
    return text.lines


def growth(found: Comparison) -> str:
    """`The highest U of B, 500 MB, is 120 MB above that of A, 380 MB; most of that is workers: +110 MB.`"""
    killed = [which for which, end in zip("AB", found.endings, strict=True) if end.is_oom]
    more = "".join(f" {which} was killed at its limit: it wanted more than that." for which in killed)
    difference = found.highest.difference
    if difference is None:
        return "The highest U of one of them is not known." + more
    a, b = amount(_whole(found.highest.a)), amount(_whole(found.highest.b))
    if abs(difference) < 1 << 20:
        return f"The highest U is the same to a megabyte, {a}.{more}"
    changes = {name: pair.difference or 0 for name, pair in found.parts.items()}
    part, most = max(changes.items(), key=lambda one: one[1] if difference > 0 else -one[1])
    direction, by = "above" if difference > 0 else "below", change(int(abs(difference)))[1:]
    return (
        f"The highest U of B, {b}, is {by} {direction} that of A, {a}; most of that is {PART_NAMES[part]}: "
        f"{change(int(most))}.{more}"
    )


def _facts(found: Comparison) -> list[Fact]:
    lasted = [duration(track.lasted_s) for track in found.tracks]
    return [
        Fact("highest U, A", amount(_whole(found.highest.a)), lasted[0]),
        Fact("highest U, B", amount(_whole(found.highest.b)), lasted[1]),
        Fact("B - A", change(_whole(found.highest.difference))),
    ]


def _titles(found: Comparison) -> list[str]:
    """Names of both, with the attempt and a bad end."""
    runs = zip(found.names, (found.a, found.b), found.endings, strict=True)
    return [
        name
        + (f", attempt {one.last.number}" if one.last.number > 1 else "")
        + (f", {end.words}" if end.is_bad else "")
        for name, one, end in runs
    ]


def _add_tables(view: Page | PlainText, found: Comparison) -> None:
    if found.stages:
        view.heading("By stage", "U after it and the highest within it, A, B and B - A")
        view.table(_STAGE_COLUMNS, [_stage_row(stage) for stage in found.stages])
    view.heading("By part and process")
    columns = [Column(""), Column("A", True), Column("B", True), Column("B - A", True)]
    rows = [
        (f"{PART_NAMES[name]}, at the highest U", pair)
        for name, pair in found.parts.items()
        if pair.a or pair.b
    ]
    rows += [(f"{PART_NAMES[name]}, anon at most", pair) for name, pair in found.processes.items()]
    view.table(columns, [[label, *_cells(pair)] for label, pair in [("highest U", found.highest), *rows]])
    if found.config is not None:
        view.heading("Config", "" if found.config else "the same")
        if found.config:
            rows_ = [[key, *pair] for key, pair in found.config.items()]
            view.table([Column("key"), Column("A", is_long=True), Column("B", is_long=True)], rows_)


_STAGE_COLUMNS = [
    Column("stage"), *(Column(title, True) for title in ("after", "B", "B - A", "highest", "B", "B - A")),
    *(Column(title, True, only_page=True) for title in ("change", "B", "B - A", "seconds", "B")),
]  # fmt: skip


def _stage_row(stage: StagePair) -> list[str | Cell]:
    thread = f" ({stage.thread})" if stage.thread else ""
    only = " (A alone)" if stage.b is None else " (B alone)" if stage.a is None else ""
    seconds = stage.pair("seconds")
    return [
        Cell(stage.path[-1] + thread + only, stage.path[-1], indent=len(stage.path) - 1),
        *_cells(stage.pair("unreclaimable_bytes")),
        *_cells(stage.pair("highest_bytes")),
        *_cells(stage.pair("change_bytes"), change),
        *(Cell("-" if s is None else f"{s:.2f}", s) for s in (seconds.a, seconds.b)),
    ]


def _cells(pair: Pair, shown: Callable[[int | None], str] = amount) -> list[Cell]:
    both = [Cell(shown(_whole(n)), n) for n in (pair.a, pair.b)]
    return [*both, Cell(change(_whole(pair.difference)), pair.difference)]


def _whole(n: float | None) -> int | None:
    return None if n is None else int(n)
