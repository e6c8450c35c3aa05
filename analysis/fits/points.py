"""Runs to points of a fit: which count, which are means over seeds, what x is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.reading.fair import check_losses_compare
from analysis.reading.study import ALIASES, Run, Study
from conf import UserError
from conf.quantities import counted

Array = np.ndarray[Any, np.dtype[np.float64]]
LOSSES = ("val_loss", "validation_loss", "eval_loss", "test_loss", "loss")
"""Names of a foreign column that is taken for the loss where --y is not said."""

UNITS = {
    "flops": "training FLOPs by formula, of the last step",
    "tokens": "tokens read",
    "parameters": "parameters, all",
    "non_embedding": "parameters in the matrices of the blocks",
    "seconds": "seconds of training",
    "step": "optimizer steps",
    "d_model": "width",
    "lr": "peak learning rate",
}
_SAME_X = 1e-3
"""Relative: runs of one x are seeds of one size."""


@dataclass(frozen=True)
class Points:
    """names, x, y: by ascending x; a point is the mean of `seeds` runs. x_name, y_name: columns.
    left_out: a line for each run that is not in it. seed_deviation: of one run, over seeds of one x.
    """

    names: list[str]
    x: Array
    y: Array
    seeds: list[int]
    x_name: str
    y_name: str
    left_out: list[str]
    seed_deviation: float | None

    @property
    def x_unit(self) -> str:
        return UNITS.get(ALIASES.get(self.x_name, self.x_name), "as the column has it")


def y_column(study: Study, asked: str | None) -> str:
    """The loss that is meant.

    Raises:
        UserError: foreign files have none of a usual name, and --y is not said.
    """
    if asked:
        return study.column(asked)
    if study.is_ours:
        return "val_loss"
    there = {name for run in study.runs for name in run.values}
    found = next((name for name in LOSSES if name in there), None)
    if found is None:
        raise UserError(f"--y is needed: which column is the loss? There are: {', '.join(sorted(there))}")
    return found


def x_column(study: Study, asked: str | None, default: str) -> str:
    """What the loss is told over; `default` of runs of ours.

    Raises:
        UserError: foreign files, and --x is not said.
    """
    if asked:
        return study.column(asked)
    if study.is_ours:
        return default
    there = sorted({name for run in study.runs for name in run.values})
    raise UserError(f"--x is needed: what is the loss told over? There are: {', '.join(there)}")


def usable(
    study: Study, columns: Sequence[str], y: str, *, any_data: bool = False
) -> tuple[list[Run], list[str]]:
    """(runs that went to their end, with numbers in these columns and a finite loss; a line for each other).

    Raises:
        UserError: what is left was measured on different data.
    """
    found, left_out = [], []
    once = {id(run) for run in study.once()}
    for run in study.runs:
        missing = [name for name in (*columns, y) if run.number(name) is None]
        if id(run) not in once:
            left_out.append(f"{run.name}: the same run as another folder's")
        elif not run.counts:
            left_out.append(f"{run.name}: {run.why_not}")
        elif missing:
            left_out.append(f"{run.name}: it has no number in {', '.join(missing)}")
        elif not math.isfinite(run.number(y) or 0.0):
            left_out.append(f"{run.name}: its loss is {run.number(y)}")
        elif any(
            not (run.number(name) or 0.0) > 0 or math.isinf(run.number(name) or 0.0) for name in columns
        ):
            left_out.append(f"{run.name}: {', '.join(columns)} must be above 0 for a power law")
        else:
            found.append(run)
    if found and not any_data:
        check_losses_compare(found, y)
    return found, left_out


def points_of(study: Study, x: str, y: str, *, any_data: bool = False) -> Points:
    """Runs of one x as one point, their mean."""
    runs, left_out = usable(study, [x], y, any_data=any_data)
    runs.sort(key=lambda run: run.number(x) or 0.0)
    groups: list[list[Run]] = []
    for run in runs:
        here = run.number(x) or 0.0
        if groups and here <= (groups[-1][0].number(x) or 0.0) * (1 + _SAME_X):
            groups[-1].append(run)
        else:
            groups.append([run])
    squares, freedom = 0.0, 0
    for group in groups:
        losses = np.array([run.number(y) for run in group], dtype=np.float64)
        squares += float(((losses - losses.mean()) ** 2).sum())
        freedom += len(group) - 1
    return Points(
        names=[_name(group) for group in groups],
        x=np.array([np.mean([run.number(x) or 0.0 for run in group]) for group in groups]),
        y=np.array([np.mean([run.number(y) or 0.0 for run in group]) for group in groups]),
        seeds=[len(group) for group in groups],
        x_name=x, y_name=y, left_out=left_out,
        seed_deviation=math.sqrt(squares / freedom) if freedom else None,
    )  # fmt: skip


def check_enough(points: Points, least: int, study: Study) -> None:
    """Whether a law can be fitted to them.

    Raises:
        UserError: too few sizes, all of one x, or losses that are all equal.
    """
    sizes = len(points.x)
    if sizes < least:
        more = (
            "; run more: python experiments.py -m model=32d,48d,64d,96d,128d study.name=scaling"
            if study.is_ours
            else ""
        )
        left = f" ({counted(len(points.left_out), 'run')} left out)" if points.left_out else ""
        raise UserError(
            f"{study.path}: this fit needs >= {least} sizes, that is different values of {points.x_name}; "
            f"it has {sizes}{left}{more}"
        )
    if float(np.ptp(points.y)) <= 1e-12 * float(np.abs(points.y).max()):
        raise UserError(f"{study.path}: all losses ({points.y_name}) are equal: there is nothing to fit")
    if not (points.y > 0).all():
        raise UserError(f"{study.path}: a loss ({points.y_name}) is not above 0: no law of this kind fits")


def _name(group: Sequence[Run]) -> str:
    return group[0].name + (f" and {len(group) - 1} more" if len(group) > 1 else "")
