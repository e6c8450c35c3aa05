"""Parallel coordinates: one axis for each swept key and one for the loss, a line a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from analysis.columns import cell
from analysis.curve_plot import settings
from analysis.figures import natural_order, ramp, shown_number, value_key
from analysis.reading import Run, Study
from experiment_utils.json_values import finite, is_number
from experiment_utils.quantities import counted
from memory.report.chart import Axis, Chart, Label, Series
from memory.report.page import Page

_MOST_KEYS = 8
_MOST_LABELS = 9
_QUARTERS = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
_SPREAD = 0.07
"""Lines through one value are spread by this much, in the order of their losses, so that all are seen."""
_NO_LOSS, _NO_LOSS_AT = "diverged or not done", 1.08


def add_parallel(page: Page, study: Study, y: str) -> None:
    """Add the section for a study with two or more swept keys."""
    names = swept_keys(study)
    if len(names) < 2:
        return
    page.heading("Swept keys")
    caption = (
        f"One line a run, n = {counted(len(study.runs), 'run')}. Each axis is a swept key, small values at "
        "the bottom (logarithmic if they span a decade), and lines through one value are spread a bit. The "
        f"last axis is {y}: darker lines have a lower loss. A legend entry switches runs off."
    )
    page.drawn("plotted", parallel_chart(study.runs, names, y).to_json(), caption=caption)


def swept_keys(study: Study) -> list[str]:
    """Columns with two values or more; of the keys of the model only its name."""
    names = [name for name in settings(study.runs, study.named_facts) if not name.startswith("model.")]
    return [name for name in names if len({value_key(run.value(name)) for run in study.runs}) > 1][
        :_MOST_KEYS
    ]


def parallel_chart(runs: Sequence[Run], names: Sequence[str], y: str) -> Chart:
    """The chart. Axis i has x = i, and values between 0 and 1."""
    losses = [finite(run.value(y)) if run.counts or not run.is_ours else None for run in runs]
    known = sorted(loss for loss in losses if loss is not None)
    low, high = (known[0], known[-1]) if known else (0.0, 1.0)
    places = [axis_places(name, [run.value(name) for run in runs]) for name in names]
    labels = [
        Label(float(at), place, text)
        for at, axis in enumerate(places)
        for place, text in _thinned(sorted(set(axis.values())))
    ]
    labels += [
        Label(float(len(names)), at, f"{low + at * (high - low):.4f}") for at in (0.0, 0.5, 1.0) if known
    ]
    series = []
    for run, loss in zip(runs, losses, strict=True):
        at = _NO_LOSS_AT if loss is None else (loss - low) / ((high - low) or 1.0)
        group, color = (_NO_LOSS, "grey") if loss is None else _quarter(known, loss)
        off = _SPREAD * (0.5 if loss is None else known.index(loss) / len(known) - 0.5)
        heights = [
            axis[value_key(run.value(name))][0] + off for name, axis in zip(names, places, strict=True)
        ]
        note = ", ".join(f"{name} {cell(name, run.value(name))}" for name in names)
        note += "" if loss is None else f", {y} {loss:.4f}"
        x = [float(place) for place in range(len(names) + 1)]
        series.append(
            Series(
                run.name,
                [*heights, at],
                color,
                x=x,
                group=group,
                note=note,
                dash=(3, 3) if loss is None else (),
            )
        )
    if None in losses:
        labels.append(Label(float(len(names)), _NO_LOSS_AT, "no loss"))
    order = [*_QUARTERS, _NO_LOSS]
    series.sort(key=lambda one: -order.index(one.group))  # the best are drawn last, above the others
    return Chart(
        f"swept keys and {y} of {len(runs)} runs", (), series, Axis("", "none", names=(*names, y)),
        Axis("", "none", scale="fit"), labels=labels, height=340, legend_title=y,
    )  # fmt: skip


def axis_places(name: str, values: Sequence[Any]) -> dict[str, tuple[float, str]]:
    """Key of each value -> (place between 0 and 1, its text). Words and unknown values are equally spaced."""
    distinct = sorted({value_key(value): value for value in values}.values(), key=natural_order)
    if all(is_number(value) and finite(value) is not None for value in distinct):
        numbers = [float(value) for value in distinct]
        if numbers[0] > 0 and numbers[-1] >= 10 * numbers[0]:
            numbers = [math.log(number) for number in numbers]
        reach = (numbers[-1] - numbers[0]) or 1.0
        return {
            value_key(value): ((number - numbers[0]) / reach, shown_number(name, value))
            for value, number in zip(distinct, numbers, strict=True)
        }
    return {
        value_key(value): (at / max(1, len(distinct) - 1), cell(name, value))
        for at, value in enumerate(distinct)
    }


def _quarter(known: Sequence[float], loss: float) -> tuple[str, str]:
    """(group, colour) of a loss by its rank."""
    rank = min(3, 4 * known.index(loss) // len(known))
    return _QUARTERS[rank], ramp(rank, 4)


def _thinned(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Labels that do not overlap: the first and the last, and those with room between them."""
    found: list[tuple[float, str]] = []
    for place, text in labels:
        if not found or place - found[-1][0] >= 1 / _MOST_LABELS:
            found.append((place, text))
    if labels and found[-1] != labels[-1]:
        found[-1:] = [labels[-1]]
    return found
