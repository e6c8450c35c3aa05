"""Curves of one run, ours or of another program, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.reading.csv_table import NotATable
from analysis.reading.foreign_formats import read_table
from analysis.reading.run import Run
from experiment_utils.errors import UserError
from experiment_utils.metrics_file import Columns, read_columns

if TYPE_CHECKING:
    import numpy as np

_OF_METRICS = {"time": "seconds", "N": "non_embedding", "D": "tokens"}


def curve(run: Run, names: Sequence[str], *, rows: int | None = None) -> dict[str, np.ndarray]:
    """Columns of a run as float64 arrays of one length, nan for blanks; torn rows are left out.

    `val_loss` of a run of ours is in the rows of its evaluations; other rows are nan.

    Args:
        run: The run.
        names: Columns.
        rows: About how many rows to read of a run of ours (`read_columns`); None: all.

    Raises:
        UserError: the file cannot be read, or lacks a column; shows those that it has.
    """
    import numpy as np

    path = run.curve_file
    if run.is_row:
        raise UserError(f"{run.folder}: a row of a table of runs has no curve")
    wanted = [_OF_METRICS.get(name, name) for name in names] if run.is_ours else list(names)
    try:
        found = read_columns(path, wanted, rows=rows) if run.is_ours else _foreign_columns(run, wanted)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except NotATable as error:
        raise UserError(f"{path}: {error}") from error
    for name, column in zip(names, wanted, strict=True):
        if column not in found.values:
            raise UserError(
                f"{path}: no column {name}; there are: {', '.join(found.names)}", code="no-such-column"
            )
    return {
        name: np.array(found.values[column], dtype=np.float64)
        for name, column in zip(names, wanted, strict=True)
    }


def _foreign_columns(run: Run, names: Sequence[str]) -> Columns:
    """Columns of numbers, without rows that have a text in one of them."""
    table = read_table(run.curve_file, run.part)
    places = {name: table.columns.index(name) for name in names if name in table.columns}
    rows = [found for row in table.rows if (found := _numbers(row, [*places.values()])) is not None]
    values = zip(*rows, strict=True) if rows else ([] for _ in places)
    return Columns(tuple(table.columns), {name: list(one) for name, one in zip(places, values, strict=True)})


def _numbers(fields: Sequence[str], places: Sequence[int]) -> list[float] | None:
    try:
        return [float(fields[place]) if fields[place] else float("nan") for place in places]
    except ValueError:
        return None
