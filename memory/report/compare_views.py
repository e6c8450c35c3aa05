"""A comparison as lines of a terminal, and as a page with both runs on one time axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memory.record.stage_line import duration
from memory.report.chart import Chart, Level, Series
from memory.report.charts import limit_level, over_time
from memory.report.compare import Comparison, Pair, StagePair
from memory.report.page import Cell, Column, Fact, Page
from memory.report.text import amount, change, table

_PARTS = {
    "main": "anon, main",
    "workers": "anon, workers",
    "shmem": "shared",
    "kernel": "kernel",
    "other": "other",
}


def lines_of(found: Comparison) -> list[str]:
    """As plain text."""
    lines = [f"{which}  {title}" for which, title in zip("AB", _titles(found), strict=True)]
    lines += ["", f"  {growth_words(found)}"]
    if found.stages:
        lines += ["", "By stage: U after it, the highest within it, its change, seconds"]
        lines += table(
            (
                "stage",
                "after A",
                "after B",
                "B - A",
                "highest A",
                "highest B",
                "B - A",
                "change A",
                "change B",
                "s A",
                "s B",
            ),
            [_stage_cells(stage) for stage in found.stages],
        )
    lines += ["", "At the highest U"]
    lines += table(
        ("part", "A", "B", "B - A"),
        [(_PARTS[name], *_amounts(pair)) for name, pair in found.parts.items() if pair.a or pair.b]
        + [("U", *_amounts(found.highest))],
    )
    lines += ["", "By process, anon at most"]
    lines += table(
        ("process", "A", "B", "B - A"),
        [(name, *_amounts(found.processes[name])) for name in ("main", "workers")],
    )
    if found.config is not None:
        lines += ["", "Config"]
        lines += (
            table(("key", "A", "B"), [(key, *pair) for key, pair in found.config.items()], left=3)
            if (found.config)
            else ["  the same"]
        )
    return lines


def _titles(found: Comparison) -> list[str]:
    """Of both runs: the name, and how it ended where that is not as it should be."""
    return [
        f"{name}{_attempt(history.last.number)}{f', {end.words}' if end.is_bad else ''}"
        for name, history, end in zip(found.names, (found.a, found.b), found.endings, strict=True)
    ]


def growth_words(found: Comparison) -> str:
    """`B's highest U is 120 MB above A's; the workers grew most: +110 MB.`"""
    killed = [which for which, end in zip("AB", found.endings, strict=True) if end.is_oom]
    more = (f" {which} was killed at its limit: how much it wanted is not known." for which in killed)
    return _difference_words(found) + "".join(more)


def _difference_words(found: Comparison) -> str:
    difference = found.highest.difference
    if difference is None:
        return "The highest U of one of them is not known."
    direction = "above" if difference > 0 else "below"
    by_part = {name: pair.difference or 0 for name, pair in found.parts.items()}
    name, most = max(by_part.items(), key=lambda part: part[1] if difference > 0 else -part[1])
    if abs(difference) < 1 << 20:
        return f"The highest U is the same to a megabyte, {amount(_whole(found.highest.a))}."
    a, b, by = _whole(found.highest.a), _whole(found.highest.b), change(int(abs(difference)))[1:]
    return (
        f"The highest U of B, {amount(b)}, is {by} {direction} "
        f"that of A, {amount(a)}; most of that is {_PARTS[name]}: {change(int(most))}."
    )


def page_of(found: Comparison, *, command: str) -> str:
    """Both runs on one page, with one time axis from their start."""
    a, b = found.tracks
    names = tuple(f"{which}: {title}" for which, title in zip("AB", _titles(found), strict=True))
    page = Page(
        "Memory of two runs",
        subtitle=" · ".join(names),
        footer=f"Written by {command}. Units are powers of 1024.",
    )
    page.facts(
        [
            Fact("highest U, A", amount(_whole(found.highest.a)), duration(a.lasted_s)),
            Fact("highest U, B", amount(_whole(found.highest.b)), duration(b.lasted_s)),
            Fact("B - A", change(_whole(found.highest.difference))),
        ]
    )
    page.text(growth_words(found))
    page.heading("One over the other", "time since each began")
    lasted = max(a.lasted_s, b.lasted_s)
    page.figure(_both(found, lasted))
    top = max(_whole(found.highest.a) or 0, _whole(found.highest.b) or 0)
    for name, track in zip(names, (a, b), strict=True):
        page.heading(name)
        chart = over_time(track, height=230, group="both")
        page.figure(replace(chart, x_range=(0.0, lasted), y_max=top or None))
    if found.stages:
        page.heading("By stage")
        _stage_table(page, found.stages)
    page.heading("By part and process")
    columns = [Column(""), Column("A", True), Column("B", True), Column("B - A", True)]
    rows = [
        (f"{_PARTS[name]}, at the highest U", pair) for name, pair in found.parts.items() if pair.a or pair.b
    ]
    rows += [(f"{name}, anon at most", found.processes[name]) for name in ("main", "workers")]
    page.table(columns, [[label, *_cells(pair)] for label, pair in rows])
    if found.config is not None:
        page.heading("Config")
        if found.config:
            page.table(
                [Column("key"), Column("A"), Column("B")],
                [[key, *pair] for key, pair in found.config.items()],
            )
        else:
            page.text("The same.")
    for history in (found.a, found.b):
        if history.notes:
            page.heading(f"Notes on {history.name}")
            page.items(history.notes)
    return page.html()


def _both(found: Comparison, lasted_s: float) -> Chart:
    series = [
        Series(f"U, {name}", [m.u for m in track.moments], color, x=[m.at_s for m in track.moments])
        for name, track, color in zip("AB", found.tracks, ("blue", "red"), strict=True)
    ]
    levels = {level.value: level for track in found.tracks for level in limit_level(track)}
    shown: list[Level] = list(levels.values())
    return Chart(
        "U of both runs over time",
        (),
        series,
        levels=shown,
        group="both",
        x_range=(0.0, lasted_s),
        height=280,
    )


def _stage_cells(stage: StagePair) -> list[str]:
    after, highest = stage.pair("unreclaimable_bytes"), stage.pair("highest_bytes")
    changes, seconds = stage.pair("change_bytes"), stage.pair("seconds")
    return [
        _label(stage),
        *_amounts(after),
        *_amounts(highest),
        change(_whole(changes.a)),
        change(_whole(changes.b)),
        *("-" if s is None else f"{s:.2f}" for s in (seconds.a, seconds.b)),
    ]


def _stage_table(page: Page, stages: list[StagePair]) -> None:
    titles = ["after A", "B", "B - A", "highest A", "B", "B - A", "change A", "B", "B - A", "seconds A", "B"]
    rows: list[list[str | Cell]] = []
    for stage in stages:
        seconds = stage.pair("seconds")
        rows.append(
            [
                Cell(_label(stage).strip(), stage.path[-1], indent=len(stage.path) - 1),
                *_cells(stage.pair("unreclaimable_bytes")),
                *_cells(stage.pair("highest_bytes")),
                *_cells(stage.pair("change_bytes"), change),
                *(Cell("-" if s is None else f"{s:.2f}", s) for s in (seconds.a, seconds.b)),
            ]
        )
    page.table([Column("stage"), *(Column(title, True) for title in titles)], rows)


def _label(stage: StagePair) -> str:
    thread = f" ({stage.thread})" if stage.thread else ""
    only = " (A alone)" if stage.b is None else " (B alone)" if stage.a is None else ""
    return "  " * (len(stage.path) - 1) + stage.path[-1] + thread + only


def _amounts(pair: Pair) -> tuple[str, str, str]:
    return amount(_whole(pair.a)), amount(_whole(pair.b)), change(_whole(pair.difference))


def _cells(pair: Pair, told: Callable[[int | None], str] = amount) -> list[Cell]:
    return [
        Cell(told(_whole(pair.a)), pair.a),
        Cell(told(_whole(pair.b)), pair.b),
        Cell(change(_whole(pair.difference)), pair.difference),
    ]


def _attempt(number: int) -> str:
    return f", attempt {number}" if number > 1 else ""


def _whole(n: float | None) -> int | None:
    return None if n is None else int(n)
