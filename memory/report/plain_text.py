"""A report as plain lines of at most 80 columns: the sections of a `Page` that a terminal can show."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from experiment_utils import display
from experiment_utils.quantities import format_bytes
from memory.record.stage_line import duration
from memory.report.chart import Chart
from memory.report.page import Cell, Column, Fact, Tone

COLUMNS = 80
_BLOCKS, _ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-:=+*#"
_LEAST_NAME = 12
"""Characters of a name in the first column of a table that are left when it is cut."""


class PlainText:
    """Takes the same sections as a `Page`."""

    def __init__(self, title: str) -> None:
        self.lines = _wrapped(title)

    def heading(self, title: str, note: str = "") -> None:
        self.lines += ["", *_wrapped(title + (f": {note}" if note else ""))]

    def text(self, words: str, tone: Tone = "") -> None:
        """A paragraph."""
        self.lines += _wrapped(words, "  ")

    def items(self, lines: Sequence[str]) -> None:
        """A list."""
        for line in lines:
            self.text(line)

    def facts(self, facts: Sequence[Fact]) -> None:
        """A line for each fact."""
        wide = max((len(fact.label) for fact in facts), default=0)
        for fact in facts:
            note = f", {fact.note}" if fact.note else ""
            self.lines += _wrapped(f"  {fact.label:<{wide}}  {fact.value}{note}", "    ")

    def table(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], *, caption: str = ""
    ) -> None:
        """A table without the columns that are for pages alone. Names are cut if it is too wide."""
        places = [i for i, column in enumerate(columns) if not column.only_page]
        shown = [[row[i] for i in places] for row in rows]
        text = [["  " * c.indent + c.text if isinstance(c, Cell) else c for c in row] for row in shown]
        if not any(row[-1] for row in text) and not columns[places[-1]].title:
            places, text = places[:-1], [row[:-1] for row in text]
        right = [at for at, i in enumerate(places) if columns[i].is_number]
        titles = [columns[i].title for i in places]
        found = display.table(titles, text, right=right, indent="  ")
        over = max(map(len, found)) - COLUMNS
        if over > 0:
            wide = max(_LEAST_NAME, max(len(row[0]) for row in text) - over)
            cut = [[row[0] if len(row[0]) <= wide else f"{row[0][: wide - 1]}…", *row[1:]] for row in text]
            found = display.table(titles, cut, right=right, indent="  ")
        self.lines += ([f"  {caption}"] if caption else []) + found

    def figure(self, chart: Chart, *, title: str = "", caption: str = "") -> None:
        """The first line of a chart as blocks."""
        line = next((one for one in chart.series if one.kind == "line"), None)
        known = [] if line is None else [y for y in line.y if y is not None]
        if line is None or not known:
            return
        top = max([*known, chart.y_axis.end])
        limit = next((limit for limit in chart.limits_in_view if limit.value >= top), None)
        name = ("" if chart.y_axis.unit == "percent" else "highest ") + _amount(top, chart)
        scale, name = (top, name) if limit is None else (limit.value, limit.label)
        blocks = sparkline(list(zip(chart.x, line.y, strict=True)), scale, COLUMNS - 24)
        self.text(f"{title or line.name}; full block: {name}")
        self.lines.append(f"  {blocks} {duration(chart.ends)}")

    def figures(self, charts: Sequence[tuple[str, Chart]]) -> None:
        """The first line of each chart as blocks."""
        for title, chart in charts:
            self.figure(chart, title=title)


def _amount(value: float, chart: Chart) -> str:
    if chart.y_axis.unit == "bytes":
        return format_bytes(int(value))
    return f"{value:.0f}%" if chart.y_axis.unit == "percent" else f"{value:.0f} W"


def sparkline(points: Sequence[tuple[float, float | None]], highest: float, width: int) -> str:
    """Draw values as blocks from 0 to `highest`.

    Args:
        points: (x, value) by x. A stretch without a value looks like the one before it.
        highest: The value of a full block.
        width: Number of blocks; each shows the highest value of its stretch of x.
    """
    known = [(x, value) for x, value in points if value is not None]
    begin, reach = known[0][0], known[-1][0] - known[0][0]
    most: dict[int, float] = {}
    for x, value in known:
        place = min(width - 1, int((x - begin) / reach * width)) if reach else 0
        most[place] = max(value, most.get(place, value))
    line, now = "", 0.0
    for place in range(max(most) + 1):
        now = most.get(place, now)
        line += _BLOCKS[max(0, min(len(_BLOCKS) - 1, int(now / (highest or 1) * len(_BLOCKS))))]
    return line


def encodable(text: str, encoding: str | None) -> str:
    """The text with ASCII characters instead of blocks if the terminal's encoding lacks them."""
    try:
        _BLOCKS.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(str.maketrans(_BLOCKS, _ASCII_BLOCKS))
    return text


def _wrapped(words: str, indent: str = "") -> list[str]:
    """Lines of at most 80 columns; an amount and its unit stay together."""
    joined = re.sub(r"(\d) (?=[KMGT]?B\b|m?s\b)", "\\1\N{NO-BREAK SPACE}", words)
    first = indent if not words.startswith(" ") else ""
    lines = textwrap.wrap(joined, COLUMNS, initial_indent=first, subsequent_indent=indent + "  ")
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
