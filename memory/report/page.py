"""One self-contained HTML page: text, tables, charts, commands to copy. It loads nothing.

    page = Page("32d, seed 1", subtitle="killed by SIGKILL")
    page.heading("Over time")
    page.figure(Chart("U over time", x, [Series("U", y)]), caption="the amount that an OOM kill looks at")
    page.table([Column("stage"), Column("seconds", is_number=True)], [["train", Cell("6.2 s", 6.2)]])
    page.code("python -m memory explain RUN")
    path.write_text(page.html(), encoding="utf-8")

Every text is escaped, and a policy in the page's head allows no script but its own (by its hash) and no
request: the name of a run can do no harm. The same input makes the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from experiment_utils.typed_here import as_typed_here
from memory.report.chart import Chart
from memory.report.colors import variables

Tone = Literal["", "bad", "good", "note"]
_HERE = Path(__file__).parent
_SCRIPTS = ("page.js",)
_FIGURE_SCRIPTS, _FIGURE_STYLES = ("vendor/uPlot.iife.min.js", "figure.js"), ("vendor/uPlot.min.css",)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    is_number: bool = False
    is_long: bool = False
    """Texts are broken into lines."""
    only_page: bool = False
    """A terminal has no room for it."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    value: float | str | None = None
    """Key to sort by; None sorts last."""
    bar: float | None = None
    """Share, 0 to 1, drawn as a bar."""
    indent: int = 0
    tone: Tone = ""


@dataclass(frozen=True)
class Fact:
    """A number on a tile."""

    label: str
    value: str
    note: str = ""
    share: float | None = None
    """Share, 0 to 1, drawn as a meter."""
    tone: Tone = ""


class Page:
    """A page, filled from top to bottom.

    Args:
        title: Title of the page and its first heading.
        subtitle: A line below it.
        tone: Tone of the subtitle.
        footer: The last line.
        script: A script of one's own, which finds the functions of page.js.
        style: CSS of one's own.
        may_fetch: The page may send requests to the server that it came from.
        has_contents: The headings are listed at the top.
    """

    def __init__(
        self, title: str, *, subtitle: str = "", tone: Tone = "", footer: str = "", script: str = "",
        style: str = "", may_fetch: bool = False, has_contents: bool = False,
    ) -> None:  # fmt: skip
        self.title, self.subtitle, self.tone, self.footer = title, subtitle, tone, footer
        self.script, self.style, self.may_fetch, self.has_contents = script, style, may_fetch, has_contents
        self._parts: list[str] = []
        self._headings: list[tuple[str, int]] = []
        self._has_charts = False

    def heading(self, title: str, note: str = "") -> None:
        small = f"<small>{_text(note)}</small>" if note else ""
        self._headings.append((title, len(self._parts)))
        name = f' id="{_anchor(title)}"' if self.has_contents else ""
        self._parts.append(f"<h2{name}>{_text(title)}{small}</h2>")

    def text(self, words: str, tone: Tone = "") -> None:
        """A paragraph."""
        self._parts.append(f"<p{_class(tone)}>{_text(words)}</p>")

    def items(self, lines: Sequence[str]) -> None:
        """A list."""
        self._parts.append("<ul>" + "".join(f"<li>{_text(one)}</li>" for one in lines) + "</ul>")

    def definitions(self, pairs: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Names, each with its lines."""
        rows = (f"<dt>{_text(name)}</dt><dd>{'<br>'.join(map(_text, lines))}</dd>" for name, lines in pairs)
        self._parts.append(f'<dl class="words">{"".join(rows)}</dl>')

    def facts(self, facts: Sequence[Fact]) -> None:
        """Tiles in a row."""
        self._parts.append('<dl class="facts">' + "".join(map(_tile, facts)) + "</dl>")

    def table(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], *, caption: str = ""
    ) -> None:
        """A table; a click on a title sorts by it."""
        titles = "".join(_title(column) for column in columns)
        body = "".join(
            "<tr>" + "".join(_cell(cell, column) for cell, column in zip(row, columns, strict=True)) + "</tr>"
            for row in rows
        )
        above = f"<caption>{_text(caption)}</caption>" if caption else ""
        self._parts.append(
            f'<div class="scroll"><table class="sortable">{above}'
            f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def figure(self, chart: Chart, *, title: str = "", caption: str = "") -> None:
        """A chart that shows values on hover and can be zoomed."""
        self._has_charts = True
        self.drawn("chart", chart.to_json(), title=title, caption=caption)

    def figures(self, charts: Sequence[tuple[str, Chart]]) -> None:
        """Small charts in rows, each with its title."""
        self._has_charts = True
        self.drawings("chart", [(title, chart.to_json()) for title, chart in charts])

    def drawn(self, kind: str, value: Any, *, title: str = "", caption: str = "") -> None:
        """A figure of a CSS class that a script of one's own draws from the JSON in it."""
        self._parts.append(_figure(kind, value, title, caption))

    def drawings(self, kind: str, values: Sequence[tuple[str, Any]]) -> None:
        """Small figures of one's own in rows, each with its title."""
        inside = "".join(_figure(kind, value, title, "") for title, value in values)
        self._parts.append(f'<div class="grid2">{inside}</div>')

    def code(self, text: str) -> None:
        """Commands with a button that copies them."""
        self._parts.append(
            f'<div class="code"><button type="button" class="copy">Copy</button>'
            f"<pre><code>{_text(as_typed_here(text))}</code></pre></div>"
        )

    @contextmanager
    def folded(self, summary: str) -> Iterator[None]:
        """Sections that are added within are shown when the reader opens them, and in print."""
        outer, self._parts = self._parts, []
        try:
            yield
        finally:
            body, self._parts = "\n".join(self._parts), outer
            self._parts.append(f"<details><summary>{_text(summary)}</summary>\n{body}\n</details>")

    def html(self) -> str:
        """The page."""
        scripts = [*map(_read, [*_SCRIPTS, *_FIGURE_SCRIPTS * self._has_charts]), self.script]
        script = "\n".join(['"use strict";', "(() => {", *scripts, "})();", ""])
        styles = map(_read, ["page.css", *_FIGURE_STYLES * self._has_charts])
        style = variables() + "\n".join([*styles, self.style])
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'" + "; connect-src 'self'" * self.may_fetch
        )
        subtitle = f"<p{_class(self.tone or 'subtitle')}>{_text(self.subtitle)}</p>" if self.subtitle else ""
        footer = f"<footer>{_text(self.footer)}</footer>" if self.footer else ""
        body = "\n".join(self._parts)
        if self.has_contents:
            body = "\n".join(
                f'<section data-title="{_text(title)}">\n{part}\n</section>'
                for title, part in self.sections()
            )
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{_text(self.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
            f"<header><h1>{_text(self.title)}</h1>{subtitle}</header>\n"
            f"{body}\n{footer}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
        )

    def sections(self) -> list[tuple[str, str]]:
        """(title, HTML) of each section; the first, without a title, is all before the first heading."""
        titles = ["", *(title for title, _ in self._headings)]
        starts = [0, *(start for _, start in self._headings), len(self._parts)]
        parts = ["\n".join(self._parts[begin:end]) for begin, end in pairwise(starts)]
        parts[0] = "\n".join([*self._contents(), parts[0]])
        return list(zip(titles, parts, strict=True))

    def _contents(self) -> list[str]:
        links = (f'<a href="#{_anchor(title)}">{_text(title)}</a>' for title, _ in self._headings)
        return [f'<nav aria-label="Contents">{"".join(links)}</nav>'] if self.has_contents else []


def _read(name: str) -> str:
    """A file of this package; it is put into the page, which works from a disk, without a network."""
    return (_HERE / name).read_text(encoding="utf-8")


def data_block(value: Any) -> str:
    """JSON for a script element: without `<`, so no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json">{safe}</script>'


def _figure(kind: str, value: Any, title: str, caption: str) -> str:
    head = f"<figcaption>{_text(title)}</figcaption>" if title else ""
    below = f"<p>{_text(caption)}</p>" if caption else ""
    return (
        f'<figure class="{kind}">{head}<div class="place">'
        "<noscript><p>Drawn by the page's own script, which is off: see the tables.</p></noscript>"
        f"</div>{below}{data_block(value)}</figure>"
    )


def _tile(fact: Fact) -> str:
    note = f"<small>{_text(fact.note)}</small>" if fact.note else ""
    meter = ""
    if fact.share is not None:
        share = min(1.0, max(0.0, fact.share))
        kind = "meter near" if share >= 0.9 else "meter"
        meter = f'<span class="{kind}"><i style="width:{100 * share:.1f}%"></i></span>'
    return (
        f"<div><dt>{_text(fact.label)}</dt><dd{_class(fact.tone)}>{_text(fact.value)}{note}{meter}</dd></div>"
    )


def _title(column: Column) -> str:
    title = _text(column.title)
    shown = f'<button type="button">{title}</button>' if title else ""
    return f'<th scope="col"{_class("right" if column.is_number else "")}>{shown}</th>'


def _cell(given: str | Cell, column: Column) -> str:
    cell = given if isinstance(given, Cell) else Cell(given, given if not column.is_number else None)
    value = "" if cell.value is None else f' data-value="{_text(str(cell.value))}"'
    names = ["right" if column.is_number else "", "wrap" if column.is_long else "", cell.tone]
    style = f' style="padding-left:{1.2 * cell.indent:g}em"' if cell.indent else ""
    bar = ""
    if cell.bar is not None:
        bar = f'<span class="bar"><i style="width:{100 * max(0.0, min(1.0, cell.bar)):.0f}%"></i></span>'
    return f"<td{_class(' '.join(filter(None, names)))}{style}{value}>{_text(cell.text)}{bar}</td>"


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower())


def _class(names: str) -> str:
    return f' class="{_text(names)}"' if names else ""


def _text(words: str) -> str:
    """Escaped; characters that UTF-8 cannot encode, from a file name of another encoding, are replaced."""
    return html.escape(words.encode("utf-8", "replace").decode("utf-8"))
