"""The table of runs on a page, which readers sort and filter."""

from __future__ import annotations

from typing import Any

from analysis.columns import cell, is_right, shown_columns, titles
from analysis.reading import Run, Study
from analysis.reading.study import GOING_ON
from experiment_utils.json_values import finite, is_number
from experiment_utils.quantities import format_duration
from memory.report.page import Cell, Column, Page, Tone

HINT = "64d   lr<0.01   state!=done   -word   tags=baseline"
_LONG = ("notes", "reason")
_NEAR = 0.9
LEFT = "left"
"""Title of the column of the time left."""


def add_runs(page: Page, study: Study, best: Run | None) -> None:
    """Add the table, in the order of the study: curves.js knows a row by its place."""
    columns = _columns(study)
    heads = [
        Column(title, name == LEFT or is_right([run.value(name) for run in study.runs]), name in _LONG)
        for name, title in zip(columns, titles(study.runs, columns), strict=True)
    ]
    page.heading("Runs", "a title sorts, words and conditions filter")
    page.drawn("filter", HINT)
    page.table(heads, [[_cell(run, name, run is best) for name in columns] for run in study.runs])


def _columns(study: Study) -> list[str]:
    """Columns of `table`, the time left if runs are going on, tags and notes if there are any."""
    columns = shown_columns(study)
    if study.is_ours and any(run.state in GOING_ON for run in study.runs):
        columns.insert(columns.index("step") + 1 if "step" in columns else len(columns), LEFT)
    more = [name for name in ("tags", "notes") if any(run.value(name) for run in study.runs)]
    return [*columns, *(more if study.is_ours else [])]


def _cell(run: Run, name: str, is_best: bool) -> Cell:
    value = run.value(name)
    text = cell(name, value)
    if name == "run" and is_best:
        return Cell(f"{text} ★", text, tone="good")
    if name == "state" and run.is_ours and not run.counts:
        tone: Tone = "" if run.state in GOING_ON and not run.has_diverged else "bad"
        return Cell(f"{text}, diverged" if run.has_diverged else text, text, tone=tone)
    if name == LEFT:
        left_s = seconds_left(run)
        return Cell("-" if left_s is None else format_duration(left_s), left_s)
    step, steps = run.number("step"), run.number("steps")
    if name == "step" and run.state in GOING_ON and step is not None and steps:
        return Cell(f"{step:,.0f} of {steps:,.0f}", step, bar=step / steps)
    peak, limit = run.number("peak_bytes"), run.number("limit_bytes")
    if name == "peak_bytes" and peak and limit:
        return Cell(text, peak, bar=peak / limit, tone="bad" if peak >= _NEAR * limit else "")
    return Cell(text, order(value))


def seconds_left(run: Run) -> float | None:
    """Time left in training at the pace so far; None for a run that is not training."""
    step, steps, seconds = run.number("step"), run.number("steps"), run.number("seconds")
    if run.state not in GOING_ON or not step or not steps or not seconds:
        return None
    return max(0.0, (steps - step) * seconds / step)


def order(value: Any) -> float | str | None:
    """The key by which a column is sorted."""
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value).lower()
    if is_number(value):
        return finite(value)
    return cell("", value)
