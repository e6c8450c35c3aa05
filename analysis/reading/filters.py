"""Conditions such as `--where model=64d` that choose runs."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from analysis.reading.study import Run, Study
from experiment_utils.errors import UserError
from experiment_utils.quantities import parse_count

_CONDITION = re.compile(r"\s*([^<>=!]+?)\s*(<=|>=|!=|=|<|>)\s*(.*?)\s*")
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def only(study: Study, conditions: Sequence[str]) -> Study:
    """The study with only the runs that meet all conditions.

    A condition is COLUMN=VALUE; VALUE can be several values with commas, and can contain `*`. The other signs
    are != < <= > >=.

    Raises:
        UserError: a condition cannot be understood, names no column, or no run meets all.
    """
    runs = list(study.runs)
    for text in conditions:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise UserError(
                f"--where {text}: expected COLUMN=VALUE, such as model=64d, lr<0.01, state!=done",
                code="condition",
            )
        column, sign, wanted = study.column(match[1]), match[2], match[3]
        meets = _meets(text, sign, wanted)
        kept = [run for run in runs if meets(run.value(column))]
        if not kept and runs:
            there = sorted({_shown(run.value(column)) for run in runs})
            more = f" and {len(there) - 12} more" if len(there) > 12 else ""
            raise UserError(
                f"--where {text}: no run is so; there are: {', '.join(there[:12])}{more}", code="no-run-left"
            )
        runs = kept
    return replace(study, runs=runs)


def _meets(text: str, sign: str, wanted: str) -> Callable[[Any], bool]:
    if sign in _ORDER:
        bound = _number(wanted)
        if bound is None:
            raise UserError(f"--where {text}: expected a number after {sign}", code="condition")
        compare = _ORDER[sign]
        return lambda value: (found := _number(value)) is not None and compare(found, bound)
    choices = [part.strip() for part in wanted.split(",")]
    is_wanted = sign == "="
    return lambda value: any(_equal(value, choice) for choice in choices) is is_wanted


def _equal(value: Any, choice: str) -> bool:
    ours, theirs = _number(value), _number(choice)
    if ours is not None and theirs is not None:
        return abs(ours - theirs) <= 1e-9 * max(abs(ours), abs(theirs))
    if isinstance(value, list):
        return any(_equal(one, choice) for one in value)
    return fnmatch.fnmatchcase(_shown(value), choice)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None or isinstance(value, list):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        pass
    try:
        return float(parse_count(value))
    except ValueError:
        return None


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def same(runs: Sequence[Run], column: str) -> bool:
    """Whether all runs that have a value in a column have the same."""
    return len({_shown(run.value(column)) for run in runs if run.value(column) is not None}) <= 1
