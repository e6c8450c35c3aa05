"""Whole columns of one run, ours or foreign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.reading.dialect import OURS, dialect_of
from analysis.reading.study import Run
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import numpy as np

_OF_METRICS = {"time": "seconds", "N": "non_embedding", "D": "tokens"}


def curve(run: Run, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Column to its values, float64, all of one length, a blank being nan; rows that are torn are left out.

    `val_loss` of a run of ours stands where it was evaluated; other rows are nan.

    Raises:
        UserError: the file cannot be read, or lacks a column; names those that it has.
    """
    import numpy as np

    path = run.curve_file
    if run.is_row:
        raise UserError(f"{path}: a row of a table of runs has no curve")
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    header, *lines = text.split("\n")
    if run.is_ours and lines:
        lines.pop()  # after the last line's end; what stands there may have lost digits
    dialect = OURS if run.is_ours else dialect_of(header, lines[0] if lines else "")
    columns = dialect.fields(header)
    places = []
    for name in names:
        column = _OF_METRICS.get(name, name) if run.is_ours else name
        if column not in columns:
            raise UserError(f"{path}: no column {name}; there are: {', '.join(columns)}")
        places.append(columns.index(column))
    split = _plain if dialect == OURS and (run.is_ours or '"' not in text) else dialect.fields
    rows = [found for line in lines if (found := _row(split(line), places, len(columns))) is not None]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return {name: table[:, place] for place, name in enumerate(names)}


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
