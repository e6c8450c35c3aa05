"""metrics.csv, sources.csv, evals.jsonl: what a run tells of its progress, row by row, exact through resume.

A row is one write(2) to a file opened for appending: SIGKILL loses none that was written. On resume
these files are cut back to the checkpoint's step, so that each step is there once. Columns of another version
are kept; a file of which a line cannot be read, or whose columns change, is kept as NAME.old-1.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.json_values import is_number

log = logging.getLogger("training")


@dataclass(frozen=True)
class Row:
    """One optimizer step. Losses in nats a token; the last three columns are the clock's.

    tokens and flops are totals since the start of the run; seconds is the time spent in training
    steps since then, all attempts; mfu is relative to the measured matrix-multiply peak of a GPU.
    """

    step: int
    tokens: int
    train_loss: float
    val_loss: float | None
    lr: float
    grad_norm: float
    flops: float
    seconds: float
    tokens_per_s: float
    mfu: float | None


CLOCK_COLUMNS = ("seconds", "tokens_per_s", "mfu")
"""The columns that differ between two runs of the same config."""

COLUMNS = tuple(field.name for field in fields(Row))


@dataclass(frozen=True)
class SourceRow:
    """What one optimizer step read of one source of a mixture.

    tokens: of the source since the start of the run. train_loss: mean over its labels in this step, nats a
    token; None where the step read nothing of it.
    """

    step: int
    source: str
    tokens: int
    train_loss: float | None


SOURCE_COLUMNS = tuple(field.name for field in fields(SourceRow))


class RowsFile:
    """Rows of one kind in a csv, opened for appending behind those up to `step`. path: None: nowhere.

    columns: those of this version. Others that the file has stay in it, and are blank in new rows.
    """

    def __init__(self, path: Path | None, step: int, columns: tuple[str, ...]) -> None:
        self._is_kept = path is not None
        self._columns = columns
        if path is None:
            self._descriptor = os.open(os.devnull, os.O_WRONLY)
            return
        self._columns = _cut_rows(path, step, columns)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    def append(self, rows: Sequence[Row | SourceRow], own: Sequence[Mapping[str, float]] = ()) -> None:
        """Write the rows. Floats are written so that they read back to the same number.

        Args:
            own: the user's metrics of each row, by column; empty: none has any.
        """
        cells = [asdict(row) | dict(more) for row, more in zip(rows, own or [{}] * len(rows), strict=True)]
        _write_all(self._descriptor, _as_csv(cells, self._columns).encode())

    def sync(self) -> None:
        """Put the rows on the disk itself."""
        if self._is_kept:
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class MetricsFile(RowsFile):
    """metrics.csv of a run."""

    def __init__(self, path: Path | None, step: int, own: Sequence[str] = ()) -> None:
        """own: columns of the user's metrics."""
        super().__init__(path, step, (*COLUMNS, *own))


class SourcesFile(RowsFile):
    """sources.csv of a run of a mixture: a row for each source of each step."""

    def __init__(self, path: Path | None, step: int) -> None:
        super().__init__(path, step, SOURCE_COLUMNS)


def append_records(path: Path, *records: dict[str, Any]) -> None:
    """Add JSON objects with their `step` to evals.jsonl or rollbacks.jsonl, all at once."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        _write_all(descriptor, "".join(json.dumps(record) + "\n" for record in records).encode())
    finally:
        os.close(descriptor)


def cut_records(path: Path, step: int, wanted: Collection[int]) -> None:
    """Drop records after `step`, and what is not whole; `wanted` are steps that must have one."""
    found = _read(path)
    lines = _whole_lines(found)
    steps = [_step_of_record(line) for line in lines]
    kept = {at: line for at, line in enumerate(lines) if (own := steps[at]) is not None and own <= step}
    _tell_missing(path, step, {one for one in wanted if one <= step} - {steps[at] for at in kept})
    _replace(path, found, "".join(kept.values()), is_all_read=None not in steps)


def _cut_rows(path: Path, step: int, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Keep the rows of steps up to `step`, by the names of their columns; returns all columns of the file.

    A header inside the file counts for the rows behind it.
    """
    found = _read(path)
    names, header, kept, steps = dict.fromkeys(columns), columns, [], set()
    is_all_read, place = True, columns.index("step")
    for line in _whole_lines(found):
        cells = next(csv.reader([line]), [])
        if "step" in cells:
            header, place = tuple(cells), cells.index("step")
            names |= dict.fromkeys(header)
        elif len(cells) != len(header) or not cells[place].isdecimal():
            is_all_read = False
        elif int(cells[place]) <= step:
            kept.append((header, line))
            steps.add(int(cells[place]))
    _tell_missing(path, step, set(range(1, step + 1)) - steps)
    united = tuple(names)
    is_all_read = is_all_read and all(own == united for own, _ in kept)
    lines = (line if own == united else _as_csv([_by_name(own, line)], united) for own, line in kept)
    _replace(path, found, ",".join(united) + "\n" + "".join(lines), is_all_read=is_all_read)
    return united


def _by_name(header: tuple[str, ...], line: str) -> dict[str, str]:
    return dict(zip(header, next(csv.reader([line])), strict=True))


def _as_csv(rows: Iterable[Mapping[str, Any]], columns: tuple[str, ...]) -> str:
    """A line for each row; None and what it lacks are blank."""
    text = io.StringIO()
    cells = ([row.get(name) for name in columns] for row in rows)
    csv.writer(text, lineterminator="\n").writerows(cells)
    return text.getvalue()


def _read(path: Path) -> str:
    """The text of a file, empty if it is absent. Raises atomic_files.Unreadable."""
    with suppress(FileNotFoundError), atomic_files.reading(path):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _whole_lines(text: str) -> list[str]:
    """Without a byte order mark, and without a last line that a kill cut short."""
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]


def _replace(path: Path, found: str, text: str, *, is_all_read: bool) -> None:
    """Make `text` the content of a file that held `found`.

    is_all_read: False: of what it held, something is lost or has another form. The file as it was is kept.
    """
    if text == found:
        return
    if not is_all_read:
        aside = next(one for n in count(1) if not (one := path.with_name(f"{path.name}.old-{n}")).exists())
        atomic_files.write_text(aside, found)
        log.warning(
            "%s has other columns than this version writes, or lines that are not whole. What can be read "
            "is kept in it; the file as it was is now %s",
            path,
            aside.name,
        )
    atomic_files.write_text(path, text)


def _tell_missing(path: Path, step: int, missing: Collection[int | None]) -> None:
    if missing:
        log.warning(
            "%s lacks the lines of %s: it was removed or damaged after they were written. The run goes on "
            "from step %s without them",
            path,
            _in_words(sorted(at for at in missing if at is not None)),
            f"{step:,}",
        )


def _step_of_record(line: str) -> float | None:
    """The step of a record, None if it has none.

    An extra one is of no milestone, so a run that resumes drops it: it counts as of the last step of all.
    """
    try:
        record = json.loads(line)
        step = math.inf if record.get("extra") else record["step"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return step if is_number(step) else None


def _in_words(steps: list[int]) -> str:
    """`steps 1-350`, `steps 10, 20 and 40`: neighbours as one range."""
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    words = [f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last in ranges]
    few = words if len(words) <= 6 else [*words[:5], f"{len(words) - 5} more ranges"]
    listed = f"{', '.join(few[:-1])} and {few[-1]}" if len(few) > 1 else few[0]
    return f"step{'s' * (len(steps) > 1)} {listed}"


def _write_all(descriptor: int, data: bytes) -> None:
    atomic_files.guard()
    while data:
        data = data[os.write(descriptor, data) :]
