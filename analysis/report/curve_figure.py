"""The figure of all runs' curves, whose x, loss, colours and panels the reader of the page chooses."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from analysis.columns import varying_columns
from analysis.curve_plot import MOST_TOGETHER, panel_column, settings
from analysis.figures import looks, natural_order, value_key
from analysis.reading import Run, Study
from analysis.report.downsample import TRAIN, VAL, thin_curves
from experiment_utils.errors import UserError
from memory.report.chart import rounded
from memory.report.page import Page

HOW_TO_READ = (
    "One line a run; training losses are means of stretches of steps. All panels have the same axes. The "
    "filter of the table decides which runs are drawn, and the dot before a run switches it off. Point at a "
    "curve to read it. Drag to zoom; 0 or a double click shows all again. Arrow keys step along a curve."
)
NOT_CHOSEN = "CSVs of other programs: --x COLUMN and --y COLUMN choose what is drawn."
_POINTS_IN_ALL = 60_000
_FEWEST, _MOST = 40, 160
_ROWS_IN_ALL = 400_000
_FEWEST_ROWS = 300
_COLUMNS = 6
Known = MutableMapping[str, tuple[tuple[int, int], dict[str, Any] | None]]
"""Path of a file of curves -> (its size and time of change, what was read from it)."""


def add_curves(
    page: Page, study: Study, *, x: str | None = None, y: str | None = None, known: Known | None = None
) -> list[str]:
    """Add the figure. Returns a line for each run whose curve cannot be read. known: curves read before."""
    runs, notes = read_curves(study, x=x, y=y, known=known)
    if not study.is_ours and x is None:
        page.heading("Curves")
        page.text(NOT_CHOSEN)
    if not runs:
        return notes
    page.heading("Curves")
    figure = figure_of(runs, [study.runs[run["row"]] for run in runs], study, x=x, y=y)
    page.drawn("curves", figure, caption=HOW_TO_READ)
    return notes


def read_curves(
    study: Study, *, x: str | None = None, y: str | None = None, known: Known | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """(curves of each run as curves.js reads them, a line for each run that cannot be read)."""
    found, notes = [], []
    for row, run in enumerate(study.runs):
        try:
            one = _known_curve(run, len(study.runs), x, y, {} if known is None else known)
        except UserError as error:
            if run.state == "unreadable" or run.curve_file.exists():
                notes.append(str(error))
            continue
        if one is not None:
            note = "" if run.counts or not run.is_ours else run.why_not
            found.append({"row": row, "name": run.name, "note": note} | one)
    return found, notes


def _known_curve(run: Run, of: int, x: str | None, y: str | None, known: Known) -> dict[str, Any] | None:
    """The curve of a run, read again only if its file has changed."""
    path = str(run.curve_file)
    try:
        status = run.curve_file.stat()
        stamp = (status.st_mtime_ns, status.st_size)
    except OSError:
        stamp = (0, 0)
    if path not in known or known[path][0] != stamp:
        known[path] = stamp, curve_of(run, of=of, x=x, y=y)
    return known[path][1]


def curve_of(run: Run, *, of: int, x: str | None = None, y: str | None = None) -> dict[str, Any] | None:
    """`curves` of each loss and `scale`, FLOPs per token; None without a row.

    Args:
        of: Number of runs on the page, which share its points.

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
    return {"scale": {"flops": run.number("flops_per_token")}, "curves": curves}


def figure_of(
    curves: Sequence[dict[str, Any]], runs: Sequence[Run], study: Study, *, x: str | None = None,
    y: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The figure as curves.js reads it. curves: as `read_curves` returns them. runs: the run of each."""
    if study.is_ours:
        xs = [
            {"key": "tokens", "name": "tokens", "format": "count"},
            {"key": "flops", "name": "training FLOPs", "format": "power", "of": "tokens"},
            {"key": "seconds", "name": "time in training", "format": "seconds"},
        ]
        titles = {TRAIN: "train loss (nats per token)", VAL: "val loss (nats per token)"}
        titles |= {name: f"{name} ({unit})" if unit else name for name, unit in study.metrics.items()}
        ys = [
            {"key": key, "name": title}
            for key, title in titles.items()
            if any(key in one["curves"] for one in curves)
        ]
        xs = xs if any(one["scale"]["flops"] for one in curves) else [xs[0], xs[2]]
    else:
        xs, ys = [{"key": str(x), "name": str(x), "format": "power"}], [{"key": str(y), "name": str(y)}]
    names = settings(runs, study.named_facts)
    facet = panel_column(runs, names, None)
    columns = [name for name in names if 2 <= len({value_key(run.value(name)) for run in runs}) <= 24]
    ordered = [facet, *(name for name in columns if name != facet)] if facet else columns
    return {
        "label": f"{ys[0]['name']} of {len(runs)} runs", "xs": xs, "ys": ys, "runs": list(curves),
        "by": [_groups(name, runs) for name in _color_columns(runs, facet)],
        "panels": [_groups(name, runs, with_looks=False) for name in ordered[:_COLUMNS]],
        "has_panels": facet is not None and len(runs) > MOST_TOGETHER, "x_log": True, "y_log": True,
    }  # fmt: skip


def _color_columns(runs: Sequence[Run], facet: str | None) -> list[str]:
    """Columns for colours: the learning rate, sizes, other settings, states; names of few runs."""
    if all(run.is_ours for run in runs):
        names = varying_columns(runs)
    else:
        names = [name for name in ("lr", "model") if any(run.value(name) is not None for run in runs)]
    first = [name for name in ("lr", "model") if name in names]
    names = [*first, *(name for name in names if name not in first)][:_COLUMNS]
    names = [name for name in names if name != facet] + [name for name in names if name == facet]
    names += ["state"] if len({run.state for run in runs}) > 1 else []
    return names + (["run"] if not names or len(runs) <= 9 else [])


def _groups(name: str, runs: Sequence[Run], *, with_looks: bool = True) -> dict[str, Any]:
    """Groups of runs by a column, and the group of each run. with_looks: with their colours."""
    values = [run.value(name) for run in runs]
    found = looks(name, values)
    ordered = sorted(range(len(runs)), key=lambda at: (values[at] is None, natural_order(values[at])))
    place = {look: at for at, look in enumerate(dict.fromkeys(found[at] for at in ordered))}
    prefix = "" if name == "model" else f"{name} "
    groups = [
        [look.group, look.color, list(look.dash)] if with_looks else f"{prefix}{look.group}" for look in place
    ]
    return {"name": name, "groups": groups, "of": [place[look] for look in found]}
