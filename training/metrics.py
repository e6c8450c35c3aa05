"""metrics.csv and evals.jsonl: what a run tells of its progress, row by row, exact through resume.

A row is one write(2) to a file opened for appending: SIGKILL loses none that was written. On resume
both files are cut back to the checkpoint's step, so that no step stands twice or is missing.
"""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import durable


@dataclass(frozen=True)
class Row:
    """One optimizer step. Losses in nats a token; the last three columns are the clock's.

    tokens and flops are totals since the start of the run; seconds is the time spent in training
    steps since then, all attempts; mfu is relative to the measured matrix-multiply peak of the device.
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


class MetricsFile:
    """metrics.csv of a run, opened for appending behind the rows up to `step`."""

    def __init__(self, path: Path, step: int) -> None:
        _keep_rows(path, step)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    def append(self, rows: list[Row]) -> None:
        """Write the rows. Floats are written so that they read back to the same number."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(["" if value is None else value for value in asdict(row).values()] for row in rows)
        _write_all(self._descriptor, text.getvalue().encode())

    def sync(self) -> None:
        """Put the rows on the disk itself."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def append_evaluation(path: Path, record: dict[str, Any]) -> None:
    """Add one evaluation (a JSON object with its `step`) to evals.jsonl."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        _write_all(descriptor, (json.dumps(record) + "\n").encode())
    finally:
        os.close(descriptor)


def cut_evaluations(path: Path, step: int) -> None:
    """Drop evaluations after `step`, and a last line that a kill left half written."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
    if kept != lines:
        durable.write_text(path, "".join(kept))


def _keep_rows(path: Path, step: int) -> None:
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    rows = found.splitlines(keepends=True)[1:]
    kept = [row for row in rows if row.endswith("\n") and int(row.split(",", 1)[0]) <= step]
    text = ",".join(COLUMNS) + "\n" + "".join(kept)
    if text != found:
        durable.write_text(path, text)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
