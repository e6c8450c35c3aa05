"""The table of a page: a row a run, tags and notes too, to be sorted and filtered."""

from __future__ import annotations

from typing import Any

from analysis.columns import cell, is_right, shown_columns, titles
from analysis.reading import Run, Study
from experiment_utils.json_values import finite, is_number
from memory.report.page import Cell, Column, Page

HINT = "64d   lr<0.01   state!=done   -word   tags=baseline"
_LONG = ("notes", "reason")


def add_runs(page: Page, study: Study, best: Run | None) -> None:
    """In the order of the study: curves.js knows a row by its place."""
    columns = _columns(study)
    heads = [
        Column(title, is_right([run.value(name) for run in study.runs]), name in _LONG)
        for name, title in zip(columns, titles(study.runs, columns), strict=True)
    ]
    page.heading("Runs", "a title sorts, words and conditions filter")
    page.drawn("filter", HINT)
    page.table(heads, [[_cell(run, name, run is best) for name in columns] for run in study.runs])


def _columns(study: Study) -> list[str]:
    more = [
        name for name in ("tags", "notes") if study.is_ours and any(run.value(name) for run in study.runs)
    ]
    return [*shown_columns(study), *more]


def _cell(run: Run, name: str, is_best: bool) -> Cell:
    value = run.value(name)
    text = cell(name, value)
    if name == "run" and is_best:
        return Cell(f"{text} ★", text, tone="good")
    if name == "state" and run.is_ours and not run.counts:
        return Cell(f"{text}, diverged" if run.has_diverged else text, text, tone="bad")
    return Cell(text, order(value))


def order(value: Any) -> float | str | None:
    """What a column is sorted by."""
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value).lower()
    if is_number(value):
        return finite(value)
    return cell("", value)
