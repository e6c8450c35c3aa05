"""Runs to points of a fit: which count, which are means over seeds, what x is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.reading.fair import budgets_note, check_losses_compare
from analysis.reading.study import ALIASES, Run, Study, versions_of
from analysis.setups import of_best_setup, settings_of
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted

Array = np.ndarray[Any, np.dtype[np.float64]]
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
_OF_THE_BUDGET = ("tokens", "step")
"""Columns of which all sizes have the same value."""
AS_IT_IS = "as the column has it"
_SAME_X = 1e-3
"""Relative: runs of one x are seeds of one size."""
_SIZES, _SOME_SIZES = "32d,48d,64d,96d,128d", "32d,64d,128d"


@dataclass(frozen=True)
class Points:
    """names, x, y: by ascending x; a point is the mean of `seeds` runs. x_name, y_name: columns.
    left_out: a line for each run that is not in it. seed_deviation: of one run, over seeds of one x.
    others: names of runs whose setting is not the best of their x, which are not in it either; settings: what
    they differ in. sizes_and_tokens: (points, 2), N and D where the law is over both: x only numbers them.
    x_unit: what the numbers of x are. codes: of each point the versions of the code that made its runs; empty
    if one version made all.
    """

    names: list[str]
    x: Array
    y: Array
    seeds: list[int]
    x_name: str
    y_name: str
    left_out: list[str]
    seed_deviation: float | None
    others: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    sizes_and_tokens: Array | None = None
    x_unit: str = AS_IT_IS
    codes: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes on how the points were chosen."""
        return others_note(self.others, self.settings, self.x_name, self.y_name)


def x_column(study: Study, asked: str | None, default: str) -> str:
    """The column of x; `default` for runs of ours.

    Raises:
        UserError: foreign files, and --x is not said.
    """
    if asked:
        return study.column(asked)
    if study.is_ours:
        return default
    there = sorted({name for run in study.runs for name in run.values})
    raise UserError(
        f"--x (in Python: x=) is needed: the column of sizes or compute. There are: {', '.join(there)}"
    )


def unit_of(study: Study, column: str) -> str:
    """The meaning of its numbers; unknown for a column of another program."""
    return UNITS.get(ALIASES.get(column, column), AS_IT_IS) if study.is_ours else AS_IT_IS


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


def best_settings(
    study: Study, runs: Sequence[Run], columns: Sequence[str], y: str
) -> tuple[list[list[Run]], list[Run], list[str]]:
    """(by ascending numbers in these columns the runs of each that count, the others, what sets them apart).

    Runs of one x that differ in more than their seeds are no seeds of it: those of the best setting count.
    """
    groups: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: [run.number(name) or 0.0 for name in columns]):
        if groups and all(_near(groups[-1][0].number(name), run.number(name)) for name in columns):
            groups[-1].append(run)
        else:
            groups.append([run])
    kept: list[list[Run]] = []
    others: list[Run] = []
    settings: dict[str, None] = {}
    for group in groups:
        names = settings_of(study, group)
        if budgets_note(run.number("budget_tokens") for run in group):
            names.append("budget_tokens")
        good, rest = of_best_setup(group, lambda _: None, names, y)
        kept.append(good)
        others += rest
        settings |= dict.fromkeys(names if rest else [])
    return kept, others, list(settings)


def others_note(others: Sequence[object], settings: Sequence[str], x: str, y: str) -> list[str]:
    """A line where there are any."""
    if not others:
        return []
    return [
        f"runs of one {x} differ in {', '.join(settings)}, not in seeds alone: of each the setting with the "
        f"lowest {y} counts, {counted(len(others), 'run')} of other settings not"
    ]


def _near(one: float | None, other: float | None) -> bool:
    return math.isclose(one or 0.0, other or 0.0, rel_tol=_SAME_X)


def points_of(study: Study, x: str, y: str, *, any_data: bool = False) -> Points:
    """Runs of one x as one point: the mean over the seeds of its best setting."""
    runs, left_out = usable(study, [x], y, any_data=any_data)
    groups, others, settings = best_settings(study, runs, [x], y)
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
        others=tuple(run.name for run in others), settings=tuple(settings), x_unit=unit_of(study, x),
        codes=codes_of_points(groups),
    )  # fmt: skip


def codes_of_points(groups: Sequence[Sequence[Run]]) -> tuple[str, ...]:
    """Names of the versions of the code that made the runs of each point; empty if one version made all."""
    if not versions_of(run for group in groups for run in group).are_several:
        return ()
    return tuple(
        ", ".join(dict.fromkeys(str(run.value("code") or "unknown") for run in group)) for group in groups
    )


def check_enough(points: Points, least: int, study: Study) -> None:
    """Whether a law can be fitted to them.

    Raises:
        UserError: too few sizes, all of one x, or losses that are all equal.
    """
    count, is_of_both = len(points.x), points.sizes_and_tokens is not None
    if count < least:
        more = _more(study, points) if study.is_ours else ""
        lost = points.left_out
        left = f" ({counted(len(lost), 'run')} left out: {'; '.join(lost[:3])})" if lost else ""
        what = f"runs with {points.x_name}"
        if not is_of_both:
            what = f"sizes, that is different values of {points.x_name}"
        raise UserError(f"{study.path}: this fit needs >= {least} {what}; it has {count}{left}{more}")
    if float(np.ptp(points.y)) <= 1e-12 * float(np.abs(points.y).max()):
        raise UserError(f"{study.path}: all losses ({points.y_name}) are equal: there is nothing to fit")
    if not (points.y > 0).all():
        raise UserError(f"{study.path}: a loss ({points.y_name}) is not above 0: no law of this kind fits")


def _more(study: Study, points: Points) -> str:
    """The command that adds points to the study, like its best run."""
    from analysis.next_steps import again, budgets_around
    from experiment_utils.run_folder import RunFolder

    known = [run for run in study.runs if math.isfinite(run.number(points.y_name) or math.nan)]
    in_order = sorted(known or study.runs, key=lambda run: run.number(points.y_name) or math.inf)
    run = next((run for one in in_order if (run := RunFolder(one.folder)).config), None)
    if run is None:
        return ""
    try:
        if ALIASES.get(points.x_name, points.x_name) in _OF_THE_BUDGET:
            return f"; run more: {again(run, budgets_around(run, 4))}"
        if points.sizes_and_tokens is None:
            return f"; run more: {again(run, {}, model=_SIZES)}"
        return f"; run more: {again(run, budgets_around(run), model=_SOME_SIZES)}"
    except UserError:  # a configuration of another version
        return ""


def _name(group: Sequence[Run]) -> str:
    return group[0].name + (f" and {len(group) - 1} more" if len(group) > 1 else "")
