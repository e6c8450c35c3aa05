"""The curve of a run in some tens of points: means of stretches that are short at first, as on a log axis.

A thousand runs of a thousand rows are ten million numbers: of each stretch some rows will do for its mean,
evaluations and the last row being among them. numpy reads them at once, and only where that fails (a row is
torn) does the slow and patient reader of `analysis.reading`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
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
    """By loss, `train_loss` and `val_loss` of runs of ours, `y` of others; without those that it has not.

    points: about so many of each. rows: about so many are read of a run of ours; None: all.

    Raises:
        UserError: its file cannot be read, or lacks a column.
    """
    if not run.is_ours:
        if x is None or y is None:
            return {}
        found = curve(run, [x, y])
        return {y: _means([x], found, y, points)} if len(found[y]) else {}
    table = _table(run, rows)
    if not len(table[TRAIN]):
        return {}
    told = {TRAIN: _means(X_OF_OURS, table, TRAIN, points)}
    known = table[VAL] == table[VAL]
    if known.any():
        places = known.nonzero()[0]
        places = places[:: -(-len(places) // points)] if len(places) > 2 * points else places
        told[VAL] = Thin(
            {name: table[name][places].tolist() for name in X_OF_OURS}, table[VAL][places].tolist()
        )
    return told


def _table(run: Run, rows: int | None) -> dict[str, Array]:
    names = [*X_OF_OURS, TRAIN, VAL]
    found = _at_once(run, names, rows)
    return curve(run, names) if found is None else found


def _at_once(run: Run, names: Sequence[str], rows: int | None) -> dict[str, Array] | None:
    """None where a row is torn, or something is no number."""
    import numpy as np

    try:
        data = run.curve_file.read_bytes()
    except OSError as error:
        raise UserError(f"{run.curve_file}: cannot be read: {error.strerror}") from error
    header, _, body = data[: data.rfind(b"\n") + 1].partition(b"\n")
    columns = header.decode(errors="replace").split(",")
    if not set(names) <= set(columns) or not body:
        return None
    if rows is not None:
        body = _some(body, rows)
    values = _numbers(body)
    if values is None:
        return None
    if len(values) != len(columns) * body.count(b"\n"):
        return None
    table = values.reshape(-1, len(columns))
    found = {name: table[:, columns.index(name)] for name in names}
    return found if bool((np.diff(found["tokens"]) > 0).all()) else None


def _numbers(body: bytes) -> Array | None:
    """Of all lines, one after the other; blanks are nan. None where something is no number."""
    import numpy as np
    import orjson

    told = body[:-1].replace(b"\n", b",") + (b"," if body.endswith(b",\n") else b"")
    told = told.replace(b",,", b",null,").replace(b",,", b",null,").removesuffix(b",")
    try:  # as JSON, in a third of the time
        return np.array(orjson.loads(b"[" + told + b"]"), dtype=np.float64)
    except (ValueError, TypeError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.fromstring(told.replace(b"null", b"nan"), sep=",")
    except (ValueError, DeprecationWarning):
        return None


def _some(body: bytes, rows: int) -> bytes:
    """Lines evenly and in equal ratios, evaluated ones (others have a blank within), and the last."""
    import numpy as np

    data = np.frombuffer(body, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    lines = len(ends)
    if lines <= rows:
        return body
    is_comma = data == ord(",")
    is_evaluated = np.ones(lines, dtype=bool)
    is_evaluated[np.searchsorted(ends, np.flatnonzero(is_comma[1:] & is_comma[:-1]))] = False
    evaluated = np.flatnonzero(is_evaluated)
    is_kept = np.zeros(lines, dtype=bool)
    is_kept[evaluated[:: max(1, -(-len(evaluated) // rows))]] = True
    is_kept[_spread(lines, rows)] = True
    kept = np.flatnonzero(is_kept)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return b"".join(
        [body[a:b] for a, b in zip(starts[kept].tolist(), (ends[kept] + 1).tolist(), strict=True)]
    )


@functools.cache
def _spread(lines: int, rows: int) -> Places:
    """Places of about so many, half in equal distances, half in equal ratios, the last among them."""
    import numpy as np

    evenly = np.linspace(0, lines - 1, rows // 2).astype(int)
    return np.concatenate([evenly, np.geomspace(1, lines, rows // 2).astype(int) - 1])


@functools.cache
def _stretches(rows: int, points: int) -> Places:
    """Where each begins: half of the borders in equal ratios, half in equal distances."""
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
