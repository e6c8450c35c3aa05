"""Pages for tests: one of every kind of section, with words that must stay words."""

from __future__ import annotations

from memory.report.chart import Axis, Band, Chart, LimitLine, Mark, Series
from memory.report.page import Cell, Column, Fact, Page

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">&lt;\'"]]>--><!--'


def page_with(words: str) -> str:
    """Every kind of section, and the words in each place that takes any."""
    page = Page(words, subtitle=words, tone="bad", footer=words, has_contents=True)
    page.heading(words, words)
    page.text(words)
    page.items([words])
    page.facts([Fact(words, words, words, 0.5)])
    page.definitions([(words, [words, words])])
    rows: list[list[str | Cell]] = [[words, Cell(words, words), words]]
    columns = [Column(words), Column(words, True), Column(words, is_long=True)]
    page.table(columns, rows, caption=words)
    chart = Chart(
        words, [0.0, 1.0], [Series(words, [1.0, None], note=words)], Axis(words, "seconds"),
        Axis(words, "bytes"), [LimitLine(1.0, words)], [Band(words, 0.0, None, note=words)],
        [Mark(0.5, words)], group=words,
    )  # fmt: skip
    page.figure(chart, title=words, caption=words)
    page.figures([(words, chart)])
    page.drawn("of-ones-own", {words: [words]}, title=words, caption=words)
    page.code(words)
    with page.folded(words):
        page.text(words)
    return page.html()
