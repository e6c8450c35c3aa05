"""Whole columns of one run, ours or foreign."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.reading.dialect import OURS, dialect_of
from analysis.reading.study import Run
from experiment_utils.errors import UserError
from experiment_utils.metrics_file import Columns, read_columns

if TYPE_CHECKING:
    import numpy as np

_OF_METRICS = {"time": "seconds", "N": "non_embedding", "D": "tokens"}


def curve(run: Run, names: Sequence[str], *, rows: int | None = None) -> dict[str, np.ndarray]:
    """Column to its values, float64, all of one length, a blank being nan; rows that are torn are left out.

    `val_loss` of a run of ours is in the rows of its evaluations; other rows are nan.
    rows: about how many rows to read of a run of ours (`read_columns`); None: all.

    Raises:
        UserError: the file cannot be read, or lacks a column; names those that it has.
    """
    import numpy as np

    path = run.curve_file
    if run.is_row:
        raise UserError(f"{path}: a row of a table of runs has no curve")
    wanted = [_OF_METRICS.get(name, name) for name in names] if run.is_ours else list(names)
    try:
        found = read_columns(path, wanted, rows=rows) if run.is_ours else _foreign_columns(path, wanted)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    for name, column in zip(names, wanted, strict=True):
        if column not in found.values:
            raise UserError(
                f"{path}: no column {name}; there are: {', '.join(found.names)}", code="no-such-column"
            )
    return {
        name: np.array(found.values[column], dtype=np.float64)
        for name, column in zip(names, wanted, strict=True)
    }


def _foreign_columns(path: Path, names: Sequence[str]) -> Columns:
    header, *lines = path.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    dialect = dialect_of(header, lines[0] if lines else "")
    columns = dialect.fields(header)
    places = {name: columns.index(name) for name in names if name in columns}
    is_plain = dialect == OURS and not any('"' in line for line in lines)
    split = _plain if is_plain else dialect.fields
    rows = [
        found
        for line in lines
        if (found := _row(split(line), list(places.values()), len(columns))) is not None
    ]
    values = zip(*rows, strict=True) if rows else ([] for _ in places)
    return Columns(tuple(columns), {name: list(one) for name, one in zip(places, values, strict=True)})


def _plain(line: str) -> list[str]:
    """As a dialect does, in a third of the time."""
    return line.rstrip("\r").split(",")


def _row(parts: Sequence[str], places: Sequence[int], width: int) -> list[float] | None:
    if len(parts) != width:
        return None
    try:
        return [float(parts[place]) if parts[place].strip() else float("nan") for place in places]
    except ValueError:
        return None
