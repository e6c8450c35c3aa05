"""One self-contained HTML page: words, tables, charts, pictures, commands to copy. Nothing is loaded by it.

    page = Page("32d, seed 1", subtitle="killed by SIGKILL")
    page.heading("Over time")
    page.figure(Chart("U over time", x, [Series("U", y)]), caption="what an OOM kill looks at")
    page.table([Column("stage"), Column("seconds", is_number=True)], [["train", Cell("6.2 s", 6.2)]])
    page.code("python -m memory explain RUN")
    path.write_text(page.html(), encoding="utf-8")

Every text is escaped, and a policy in the page's head allows no script but its own (by its hash) and no
request: what a run is called can do no harm. The same input makes the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from memory.report.chart import Chart
from memory.report.colors import variables

Tone = Literal["", "bad", "good", "note"]
_HERE = Path(__file__).parent
_SCRIPTS = ("amounts.js", "chart.js", "page.js")


@dataclass(frozen=True)
class Column:
    """Of a table."""

    title: str
    is_number: bool = False


@dataclass(frozen=True)
class Cell:
    """value: what the table is sorted by; None sorts last. bar: 0 to 1, drawn beside it. indent: levels."""

    text: str
    value: float | str | None = None
    bar: float | None = None
    indent: int = 0
    tone: Tone = ""


@dataclass(frozen=True)
class Fact:
    """A number worth a tile. share: 0 to 1, drawn as a meter."""

    label: str
    value: str
    note: str = ""
    share: float | None = None
    tone: Tone = ""


class Page:
    """Takes its sections from top to bottom. title: of the page and its first heading."""

    def __init__(self, title: str, *, subtitle: str = "", tone: Tone = "", footer: str = "") -> None:
        self.title, self.subtitle, self.tone, self.footer = title, subtitle, tone, footer
        self._parts: list[str] = []

    def heading(self, title: str, note: str = "") -> None:
        small = f"<small>{_text(note)}</small>" if note else ""
        self._parts.append(f"<h2>{_text(title)}{small}</h2>")

    def text(self, words: str, tone: Tone = "") -> None:
        """A paragraph."""
        self._parts.append(f"<p{_class(tone)}>{_text(words)}</p>")

    def items(self, words: Sequence[str]) -> None:
        """A list of lines."""
        self._parts.append("<ul>" + "".join(f"<li>{_text(one)}</li>" for one in words) + "</ul>")

    def facts(self, facts: Sequence[Fact]) -> None:
        """Tiles side by side."""
        self._parts.append('<dl class="facts">' + "".join(map(_tile, facts)) + "</dl>")

    def table(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str | Cell]],
        *,
        caption: str = "",
        is_sortable: bool = True,
    ) -> None:
        """A table; a click on a title sorts by it."""
        titles = "".join(_title(column, is_sortable) for column in columns)
        body = "".join(
            "<tr>" + "".join(_cell(cell, column) for cell, column in zip(row, columns, strict=True)) + "</tr>"
            for row in rows
        )
        told = f"<caption>{_text(caption)}</caption>" if caption else ""
        self._parts.append(
            f'<div class="scroll"><table{_class("sortable" if is_sortable else "")}>{told}'
            f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def figure(self, chart: Chart, *, title: str = "", caption: str = "") -> None:
        """A chart that can be pointed at, zoomed and filtered."""
        self._parts.append(_figure(chart, title, caption))

    def figures(self, charts: Sequence[tuple[str, Chart]]) -> None:
        """Small charts side by side, each with its title."""
        self._parts.append(
            '<div class="grid2">' + "".join(_figure(chart, title, "") for title, chart in charts) + "</div>"
        )

    def image(self, png: bytes, *, alt: str, caption: str = "") -> None:
        """A picture, as part of the page."""
        data = base64.b64encode(png).decode()
        told = f"<p>{_text(caption)}</p>" if caption else ""
        self._parts.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{_text(alt)}">{told}</figure>'
        )

    def code(self, text: str) -> None:
        """Commands with a button that copies them."""
        self._parts.append(
            f'<div class="code"><button type="button" class="copy">Copy</button>'
            f"<pre><code>{_text(text)}</code></pre></div>"
        )

    @contextmanager
    def folded(self, summary: str) -> Iterator[None]:
        """What is added within is shown when the reader asks for it, and in print."""
        outer, self._parts = self._parts, []
        try:
            yield
        finally:
            inner, self._parts = self._parts, outer
            body = "\n".join(inner)
            self._parts.append(f"<details><summary>{_text(summary)}</summary>\n{body}\n</details>")

    def html(self) -> str:
        """The page."""
        script = _script()
        style = variables() + (_HERE / "page.css").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        )
        subtitle = (
            f'<p class="{_text(self.tone or "subtitle")}">{_text(self.subtitle)}</p>' if self.subtitle else ""
        )
        footer = f"<footer>{_text(self.footer)}</footer>" if self.footer else ""
        body = "\n".join(self._parts)
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{_text(self.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
            f"<header><div><h1>{_text(self.title)}</h1>{subtitle}</div>"
            '<button type="button" class="theme" hidden>Light / dark</button></header>\n'
            f"{body}\n{footer}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
        )


def _script() -> str:
    """One for all of the page. Nothing is loaded: it works from a disk, without a network."""
    parts = [(_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    return "\n".join(['"use strict";', "(() => {", *parts, "})();", ""])


def data_block(value: Any) -> str:
    """JSON that may stand in a script element whatever texts it holds: no `<`, so no end of the element."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json">{safe}</script>'


def _figure(chart: Chart, title: str, caption: str) -> str:
    head = f"<figcaption>{_text(title)}</figcaption>" if title else ""
    told = f"<p>{_text(caption)}</p>" if caption else ""
    return (
        f'<figure class="chart">{head}<div class="place">'
        "<noscript><p>Drawn by the page's own script, which is off: see the tables.</p></noscript>"
        f"</div>{told}{data_block(chart.to_json())}</figure>"
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


def _title(column: Column, is_sortable: bool) -> str:
    title = _text(column.title)
    shown = f'<button type="button">{title}</button>' if is_sortable and title else title
    return f'<th scope="col"{_class("right" if column.is_number else "")}>{shown}</th>'


def _cell(given: str | Cell, column: Column) -> str:
    cell = given if isinstance(given, Cell) else Cell(given, given if not column.is_number else None)
    value = "" if cell.value is None else f' data-value="{_text(str(cell.value))}"'
    classes = " ".join(filter(None, ["right" if column.is_number else "", cell.tone]))
    style = f' style="padding-left:{1.2 * cell.indent:g}em"' if cell.indent else ""
    bar = ""
    if cell.bar is not None:
        bar = f'<span class="bar"><i style="width:{100 * max(0.0, min(1.0, cell.bar)):.0f}%"></i></span>'
    return f"<td{_class(classes)}{style}{value}>{_text(cell.text)}{bar}</td>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _text(words: str) -> str:
    """Escaped; what UTF-8 has no bytes for, from a file name of another encoding, is replaced."""
    return html.escape(words.encode("utf-8", "replace").decode("utf-8"))
