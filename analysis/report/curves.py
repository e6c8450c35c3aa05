"""The figure of all runs' curves: over tokens, FLOPs or time, coloured by what varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from analysis.columns import cell, varying_columns
from analysis.reading import Run, Study
from analysis.report.plot import rounded
from analysis.report.thin import TRAIN, VAL, thin_curves
from experiment_utils.errors import UserError
from experiment_utils.json_values import is_number
from memory.report.page import Page

HOW_TO_READ = (
    "The filter of the table says which runs are drawn, the dot before a run switches it off. Point at a "
    "curve to read it, drag to look closer, 0 or a double click shows all again; arrow keys step along it."
)
NOT_SAID = "Of CSVs of other programs --x COLUMN and --y COLUMN say what is drawn."
_POINTS_IN_ALL = 60_000
_FEWEST, _MOST = 40, 160
_ROWS_IN_ALL = 400_000
_FEWEST_ROWS = 300
_COLUMNS = 6
_FORMATS = {"tokens": "count", "parameters": "count", "lr": "rate"}


def add_curves(page: Page, study: Study, *, x: str | None = None, y: str | None = None) -> list[str]:
    """Returns a line for each run whose curve cannot be read."""
    runs, notes = read_curves(study, x=x, y=y)
    if not study.is_ours and x is None:
        page.heading("Curves")
        page.text(NOT_SAID)
    if not runs:
        return notes
    by = coloring([study.runs[run["row"]] for run in runs])
    figure = figure_of(runs, by, is_ours=study.is_ours, x=x, y=y, metrics=study.metrics)
    page.heading("Curves", "training loss: means of stretches, so that noise does not hide them")
    page.drawn("curves", figure, caption=HOW_TO_READ)
    return notes


def read_curves(
    study: Study, *, x: str | None = None, y: str | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """(what curves.js draws of each run, a line for each that cannot be read)."""
    found, notes = [], []
    for row, run in enumerate(study.runs):
        try:
            told = curve_of(run, row, of=len(study.runs), x=x, y=y)
        except UserError as error:
            if run.state == "unreadable" or run.curve_file.exists():
                notes.append(str(error))
            continue
        if told is not None:
            found.append(told)
    return found, notes


def curve_of(
    run: Run, row: int, *, of: int, x: str | None = None, y: str | None = None
) -> dict[str, Any] | None:
    """What curves.js draws of it; None without a row. of: how many runs there are, which share the points.

    Raises:
        UserError: its file cannot be read.
    """
    points = min(_MOST, max(_FEWEST, _POINTS_IN_ALL // of))
    thin = thin_curves(run, points, rows=max(_FEWEST_ROWS, _ROWS_IN_ALL // of), x=x, y=y)
    if not thin:
        return None
    curves = {
        loss: {**{name: rounded(values) for name, values in one.x.items()}, "y": rounded(one.y)}
        for loss, one in thin.items()
    }
    per_token = run.number("flops_per_token")
    note = "" if run.counts or not run.is_ours else run.why_not
    return {"row": row, "name": run.name, "note": note, "scale": {"flops": per_token}, "curves": curves}


def figure_of(
    runs: Sequence[Mapping[str, Any]], by: Sequence[dict[str, Any]], *, is_ours: bool, x: str | None = None,
    y: str | None = None, metrics: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """What curves.js reads; `runs` as `read_curves` has them, `by` as `coloring`. metrics: name to unit."""
    if is_ours:
        xs = [
            {"key": "tokens", "name": "tokens", "format": "count"},
            {"key": "flops", "name": "training FLOPs", "format": "power", "of": "tokens"},
            {"key": "seconds", "name": "seconds of training", "format": "seconds"},
        ]
        ys = [
            {"key": TRAIN, "name": "train loss, nats a token"},
            {"key": VAL, "name": "val loss, nats a token"},
            *({"key": name, "name": f"{name}, {unit}" if unit else name} for name, unit in metrics.items()),
        ]
        if runs:
            ys = [one for one in ys if any(one["key"] in run["curves"] for run in runs)]
            xs = xs if any(run["scale"]["flops"] for run in runs) else [xs[0], xs[2]]
    else:
        xs, ys = [{"key": str(x), "name": str(x), "format": "power"}], [{"key": str(y), "name": str(y)}]
    return {
        "label": f"{ys[0]['name']} of {len(runs)} runs", "xs": xs, "ys": ys, "runs": list(runs),
        "by": list(by), "x_log": True, "y_log": True,
    }  # fmt: skip


def coloring(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Columns that curves are coloured by, the learning rate first, then sizes."""
    if all(run.is_ours for run in runs):
        names = varying_columns(runs)
    else:
        names = [name for name in ("lr", "model") if any(run.value(name) is not None for run in runs)]
    first = [name for name in ("lr", "model") if name in names]
    names = [*first, *(name for name in names if name not in first)][:_COLUMNS]
    states = {run.state for run in runs}
    names += ["state"] if len(states) > 1 else []
    names += ["run"] if not names or len(runs) <= 9 else []
    return [_column(name, runs) for name in names]


def _column(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    values = [run.value(name) for run in runs]
    if all(map(is_number, values)):
        return {"name": name, "format": _FORMATS.get(name, "rate"), "values": rounded(values)}
    return {
        "name": name,
        "values": [None if value is None else cell(name, value) for value in values],
    }
