"""Whether rows of another program are the curve of one run, a table of runs, or a chart of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from analysis.reading.csv_table import Table
from analysis.reading.dialect import number_of

ROWS_HINT = "if each row is a run, add --rows"
_NAMES = ("run_id", "run", "run_name", "name", "id", "display_name", "tags.mlflow.runname")
"""Columns that name a run: each row is one, if each has its own."""
_STATES = ("state", "status")
_OF_A_RUN = (
    "model", "model_name", "model_size", "size", "seed", "n", "params", "parameters", "n_params", "width",
    "d_model", "optimizer", "dataset",
)  # fmt: skip
"""Columns that have one value in all rows of one run."""
_NO_PROGRESS = ("lr", "rate", "loss", "perplexity", "accuracy", "seed", "batch", "size")
"""A column with such a word in its name is no count of steps, tokens or time, even if its values grow."""
_RESULTS = ("loss", "perplexity", "accuracy", "metrics.")
_NO_SETTINGS = (
    *_NAMES, *_STATES, "notes", "tags", "user", "created", "updated", "runtime", "sweep", "start_time",
    "end_time",
)  # fmt: skip
"""Columns of trackers that make no other run of one."""
_MOSTLY = 2 / 3
"""Share of rows in which a count of steps grows; it falls where a run was resumed from a checkpoint."""

_COUNTS = ("step", "iter", "token", "sample")
"""A column with such a word in its name counts how far a run is."""
_LONGER = 2
"""Times the longest gap between two values of a column that blank rows at its end can reach; milestones
of evaluations on a log axis double their gaps."""


def is_row_a_run(table: Table, *, asked: bool) -> bool:
    """Whether each row is a run.

    Args:
        asked: --rows.
    """
    if asked:
        return True
    if len(table.rows) < 2:
        return False
    by_name = _by_name(table)
    if any(_are_all_different(by_name.get(name, ())) for name in _NAMES):
        return True
    return "name" in by_name and any(state in by_name for state in _STATES)  # W&B: names may be there twice


def chart_columns(columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Run -> metric -> column of a chart of W&B: `RUN - METRIC` with its `__MIN` and `__MAX`."""
    found: dict[str, dict[str, str]] = {}
    for name in columns:
        run, dash, metric = name.rpartition(" - ")
        if dash and f"{name}__MIN" in columns and f"{name}__MAX" in columns:
            found.setdefault(run, {})[metric] = name
    return found


def chart_part(table: Table, run: str) -> Table:
    """The curves of one run in a chart of W&B, over the chart's first column, `Step` for example."""
    metrics = chart_columns(table.columns)[run]
    first = table.columns[0]
    return table.only([first, *metrics.values()], [first, *metrics])


def why_no_curve(table: Table, *, is_named: bool) -> str | None:
    """Why rows that are not one run each are no curve of one run either; None if they are one.

    Args:
        is_named: --pattern says that a file is a run.
    """
    columns, rows = table.columns, table.rows
    if len(rows) < 2:
        return None
    by_name = _by_name(table)
    for name in _NAMES:
        if len(set(by_name.get(name, ()))) > 1:
            return f"it has several rows of several runs, by its column {name}: write a CSV for each run"
    for name in _OF_A_RUN:
        different = {value for value in by_name.get(name, ()) if value}
        if len(different) > 1:
            return (
                f"its rows have {len(different)} values of {name}; the curve of one run has one: {ROWS_HINT}"
            )
    growing = {
        column: there
        for place, column in enumerate(columns)
        if _grows(column, there := [row[place] for row in rows])
    }
    if not growing and not is_named:
        return (
            f"no column grows from row to row, as step or tokens do in a curve: {ROWS_HINT}; if it is the "
            "curve of one run, name its facts with --pattern"
        )
    why_not = _why_out_of_order(table)
    if why_not is None and growing and not is_named and all(map(_starts_again, growing.values())):
        return (
            f"its column {next(iter(growing))} starts again, as of several runs: write a CSV for each; if "
            "it is the curve of one run, name its facts with --pattern"
        )
    return why_not


def blank_at_the_end(table: Table) -> list[str]:
    """Columns of numbers that are blank at the end for longer than between any two of their values."""
    found, rows = [], table.rows
    for place, column in enumerate(table.columns):
        there = [number for number, row in enumerate(rows) if row[place].strip()]
        if not column or len(there) < 2 or number_of(rows[there[-1]][place]) is None:
            continue
        gap = max(later - one for one, later in pairwise(there))
        if len(rows) - 1 - there[-1] > _LONGER * gap:
            found.append(column)
    return found


def _why_out_of_order(table: Table) -> str | None:
    """Why the last row is not where the run ended: no count of steps or tokens is at its highest there."""
    behind = []
    for place, column in enumerate(table.columns):
        name, values = column.lower(), [row[place] for row in table.rows]
        if not any(word in name for word in _COUNTS) or "per" in name or not _grows(column, values):
            continue
        numbers = [found for value in values if (found := number_of(value)) is not None]
        if numbers[-1] == max(numbers):
            return None
        behind.append(
            f"its rows are not in order: {column} is {numbers[-1]:g} in the last one and {max(numbers):g} "
            f"before: sort them by {column}, or remove those of an earlier attempt"
        )
    return behind[0] if behind else None


def settings_among(table: Table) -> set[str]:
    """Columns that are settings of runs: no results or notes, and each value is there twice on average."""
    found = set()
    for place, column in enumerate(table.columns):
        name, values = _plain(column), [row[place] for row in table.rows if row[place]]
        is_other = name in _NO_SETTINGS or any(word in name for word in _RESULTS)
        is_other = is_other or not column or column.startswith(("_", "tags."))
        if not is_other and 1 < len(set(values)) <= len(values) / 2:
            found.add(column)
    return found


def name_column(table: Table) -> str | None:
    """Column whose value names each row, None without one."""
    found = [
        column
        for place, column in enumerate(table.columns)
        if _plain(column) in _NAMES and _are_all_different([row[place] for row in table.rows])
    ]
    return min(found, key=lambda column: "id" in _plain(column), default=None)  # a name says more than an id


def state_of(columns: Sequence[str], row: Sequence[str]) -> str | None:
    """State in a tracker's row of a run; None if it finished or no column has it."""
    for column, value in zip(columns, row, strict=True):
        if _plain(column) in _STATES and value.isalpha():
            return None if value.lower() in ("finished", "done", "completed") else value.lower()
    return None


def _by_name(table: Table) -> dict[str, list[str]]:
    return {
        _plain(column): [row[place] for row in table.rows]
        for place, column in enumerate(table.columns)
        if column
    }


def _plain(column: str) -> str:
    """`Model Size` as `model_size`; `params.seed`, as MLflow writes it, as `seed`."""
    return column.strip().lower().replace(" ", "_").removeprefix("params.")


def _are_all_different(values: Sequence[str]) -> bool:
    return bool(values) and all(values) and len(set(values)) == len(values) and not _count_up(values)


def _count_up(values: Sequence[str]) -> bool:
    """Whether they number the rows, as an index does."""
    numbers = [number_of(value) for value in values]
    return numbers[0] in (0, 1) and numbers == [numbers[0] + place for place in range(len(numbers))]


def _starts_again(values: Sequence[str]) -> bool:
    """Whether a count falls back to where it began; a run that resumes falls back to a checkpoint."""
    numbers = [number for value in values if (number := number_of(value)) is not None]
    return any(later <= numbers[0] < before for before, later in pairwise(numbers))


def _grows(name: str, values: Sequence[str]) -> bool:
    """Whether a column counts steps, tokens or time: a grid of settings has few values and falls often."""
    if not name or name.startswith("params.") or any(word in name.lower() for word in _NO_PROGRESS):
        return False
    there = [value for value in values if value]
    if "epoch" not in name.lower() and 2 * len(set(there)) < len(there):
        return False
    numbers = [found for value in there if (found := number_of(value)) is not None]
    if len(numbers) == len(there):
        return _mostly_grow(numbers)
    return all(value[0].isdigit() for value in there) and _mostly_grow(there)  # dates


def _mostly_grow(values: Sequence[Any]) -> bool:
    changed = [(one, other) for one, other in pairwise(values) if one != other]
    return bool(changed) and sum(one < other for one, other in changed) >= _MOSTLY * len(changed)
