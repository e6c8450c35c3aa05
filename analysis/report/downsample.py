"""The curve of a run in some tens of points: means of stretches that are short at first, as on a log axis.

A thousand runs of a thousand rows are ten million numbers: some rows of each stretch are enough for its mean,
if evaluations and the last row are among them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.reading import Run, curve
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]
    Places = np.ndarray[Any, np.dtype[np.int64]]

X_OF_OURS, TRAIN, VAL = ("tokens", "seconds"), "train_loss", "val_loss"


@dataclass(frozen=True)
class Thin:
    """x: column to values, and y, all of one length: means of stretches, of validation what was measured."""

    x: dict[str, list[float]]
    y: list[float]


def thin_curves(
    run: Run, points: int, *, rows: int | None = None, x: str | None = None, y: str | None = None
) -> dict[str, Thin]:
    """By column: `train_loss`, `val_loss` and registered metrics of runs of ours, `y` of others;
    without those that it has not.

    points: approximate number for each loss. rows: approximate number read of a run of ours; None: all.

    Raises:
        UserError: its file cannot be read, or lacks a column.
    """
    if not run.is_ours:
        if x is None or y is None:
            return {}
        found = curve(run, [x, y])
        return {y: _means([x], found, y, points)} if len(found[y]) else {}
    table = curve(run, [*X_OF_OURS, TRAIN, VAL], rows=rows)
    if not len(table[TRAIN]):
        return {}
    curves = {TRAIN: _means(X_OF_OURS, table, TRAIN, points)}
    curves |= _measured(table, VAL, points)
    for name in run.metrics:
        with suppress(UserError):  # its file has no such column yet
            curves |= _measured(curve(run, [*X_OF_OURS, name], rows=rows), name, points)
    return curves


def _measured(table: dict[str, Array], y: str, points: int) -> dict[str, Thin]:
    """The points of a column that is blank in most rows; empty if it is blank in all."""
    places = (table[y] == table[y]).nonzero()[0]
    places = places[:: -(-len(places) // points)] if len(places) > 2 * points else places
    x = {name: table[name][places].tolist() for name in X_OF_OURS}
    return {y: Thin(x, table[y][places].tolist())} if len(places) else {}


@functools.cache
def _stretches(rows: int, points: int) -> Places:
    """Start of each stretch: half of the borders in equal ratios, half in equal distances."""
    import numpy as np

    ratios = np.geomspace(1, rows, points // 2 + 1)
    starts = np.unique(np.concatenate([ratios, np.linspace(0, rows, points // 2 + 1)]).astype(int))
    return np.unique(np.concatenate([[0], starts[starts < rows]]))


def _means(xs: Sequence[str], table: dict[str, Array], y: str, points: int) -> Thin:
    """A stretch that is partly nan is nan."""
    import numpy as np

    rows = len(table[y])
    if rows <= points:
        return Thin({name: table[name].tolist() for name in xs}, table[y].tolist())
    starts = _stretches(rows, points)
    counts = np.diff([*starts, rows])

    def mean(values: Array) -> list[float]:
        return list((np.add.reduceat(values, starts) / counts).tolist())

    return Thin({name: mean(table[name]) for name in xs}, mean(table[y]))
