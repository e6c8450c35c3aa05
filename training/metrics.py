"""metrics.csv, sources.csv, evals.jsonl: what a run tells of its progress, row by row, exact through resume.

A row is one write(2) to a file opened for appending: SIGKILL loses none that was written. On resume
these files are cut back to the checkpoint's step, so that no step stands twice or is missing.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import durable

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
    """Rows of one kind in a csv, opened for appending behind those up to `step`. path: None: nowhere."""

    def __init__(self, path: Path | None, step: int, columns: tuple[str, ...]) -> None:
        self._is_kept = path is not None
        if path is None:
            self._descriptor = os.open(os.devnull, os.O_WRONLY)
            return
        _cut(path, ",".join(columns) + "\n", step, range(1, step + 1), partial(_step_of_row, columns))
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    def append(self, rows: Sequence[Row | SourceRow]) -> None:
        """Write the rows. Floats are written so that they read back to the same number."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(["" if value is None else value for value in asdict(row).values()] for row in rows)
        _write_all(self._descriptor, text.getvalue().encode())

    def sync(self) -> None:
        """Put the rows on the disk itself."""
        if self._is_kept:
            os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class MetricsFile(RowsFile):
    """metrics.csv of a run."""

    def __init__(self, path: Path | None, step: int) -> None:
        super().__init__(path, step, COLUMNS)


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
    _cut(path, "", step, {one for one in wanted if one <= step}, _step_of_record)


def _cut(
    path: Path, header: str, step: int, wanted: Collection[int], step_of: Callable[[str], int | None]
) -> None:
    """Keep the header and the lines of steps up to `step`; tell of wanted steps that have none."""
    found = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = [(step_of(line), line) for line in found.splitlines(keepends=True) if line.endswith("\n")]
    kept = [(at, line) for at, line in lines if at is not None and at <= step]
    missing = sorted(set(wanted) - {at for at, _ in kept})
    if missing:
        log.warning(
            "%s lacks the lines of %s: it was removed or damaged after they were written. The run goes on "
            "from step %s without them",
            path,
            _in_words(missing),
            f"{step:,}",
        )
    text = header + "".join(line for _, line in kept)
    if text != found:
        durable.write_text(path, text)


def _step_of_row(columns: tuple[str, ...], line: str) -> int | None:
    cells = next(csv.reader([line]), [])
    return int(cells[0]) if len(cells) == len(columns) and cells[0].isdecimal() else None


def _step_of_record(line: str) -> int | None:
    try:
        record = json.loads(line)
        step = None if record.get("extra") else record["step"]  # of no milestone: a run that goes on has none
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return step if isinstance(step, int) else None


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
    while data:
        data = data[os.write(descriptor, data) :]
