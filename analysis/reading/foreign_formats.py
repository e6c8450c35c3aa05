"""Rows of one run in the files of other programs: MLflow, TensorBoard, transformers, JSON lines, CSV."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from analysis.reading.csv_table import NotATable, Table, read_csv
from analysis.reading.foreign_table import chart_part
from experiment_utils.extras import check_installed
from experiment_utils.json_values import leaves, mappings, parse_json

EVENTS = "*.tfevents.*"
_STEP = "step"
_HPARAMS = "_hparams_/session_start_info"
_FIRST = 100
"""Values of event files among which the hyperparameters are: loggers write them first."""


def read_table(path: Path, part: str = "") -> Table:
    """Rows of a run of another program.

    Args:
        path: Its file, or its folder of MLflow or TensorBoard.
        part: Which run of a file with several: its name in a chart of W&B, its id in a database of MLflow.

    Raises:
        NotATable: it has no rows of a run.
        OSError: it cannot be read.
        UserError: the package that reads it is not installed.
    """
    if path.is_dir():
        points = _mlflow_points(path) if (path / "metrics").is_dir() else _event_points(path)
        return _by_step(points)
    if path.suffix == ".db":
        return _by_step(_database_points(path, part))
    if path.name == "trainer_state.json":
        return _table_of(log_history(path))
    if path.suffix.lower() == ".jsonl":
        return _json_lines(path)
    return chart_part(read_csv(path), part) if part else read_csv(path)


def _table_of(records: list[dict[str, Any]], torn: int = 0) -> Table:
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_field(record.get(name)) for name in columns] for record in records]
    if not rows:
        raise NotATable("it has no values yet")
    return Table(columns, rows, torn)


def _field(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _by_step(points: Iterable[tuple[str, int, float]]) -> Table:
    """Table with a row for each step, in order. A step that was logged twice has its last value."""
    rows: dict[int, dict[str, Any]] = {}
    for name, step, value in points:
        rows.setdefault(step, {_STEP: step})[name] = value
    return _table_of([rows[step] for step in sorted(rows)])


def log_history(path: Path) -> list[dict[str, Any]]:
    """Records of trainer_state.json, as the Trainer of transformers writes it."""
    try:
        state = parse_json(path.read_bytes())
    except ValueError as error:
        raise NotATable(f"it is no JSON: {error}") from error
    found = mappings(state.get("log_history") if isinstance(state, dict) else None)
    if not found:
        raise NotATable("it has no log_history with records in it")
    return found


def _json_lines(path: Path) -> Table:
    """Table of a file with a JSON object in each line; keys of nested objects are joined by dots."""
    records, torn = [], 0
    for line in path.read_bytes().splitlines():
        if not line.strip():
            continue
        try:
            found = parse_json(line)
        except ValueError:
            found = None
        if isinstance(found, dict):
            records.append(leaves(found))
        else:
            torn += 1
    if not records:
        raise NotATable("it has no line with a JSON object")
    return _table_of(records, torn)


def _mlflow_points(folder: Path) -> Iterator[tuple[str, int, float]]:
    """(metric, step, value) of a run in a folder of MLflow: lines `TIME VALUE STEP` in metrics/NAME."""
    metrics = folder / "metrics"
    for path in sorted(metrics.rglob("*")):
        if path.is_file():
            for line in path.read_text(errors="replace").splitlines():
                parts = line.split()
                if len(parts) >= 2:
                    yield str(path.relative_to(metrics)), int(parts[2]) if parts[2:] else 0, float(parts[1])


def ask_database(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Rows of a query to an SQLite file, which is not changed."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise NotATable(f"it is no database of MLflow: {error}") from error


def _database_points(path: Path, run: str) -> Iterator[tuple[str, int, float]]:
    query = "SELECT key, step, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics WHERE run_uuid = ?"
    for name, step, value in ask_database(path, f"{query} ORDER BY timestamp", run):
        yield name, step, float("nan") if value is None else value


def _event_points(folder: Path) -> Iterator[tuple[str, int, float]]:
    """(tag, step, value) of the scalars in a folder of TensorBoard."""
    from tensorboard.util import tensor_util

    for step, value, kind in _event_values(folder):
        if kind == "scalars":
            yield value.tag, step, float(tensor_util.make_ndarray(value.tensor).item())


def event_settings(folder: Path) -> dict[str, Any]:
    """Hyperparameters that were written for TensorBoard's HPARAMS."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    for _, value, kind in islice(_event_values(folder), _FIRST):
        if kind == "hparams" and value.tag == _HPARAMS:
            content = HParamsPluginData.FromString(value.metadata.plugin_data.content)
            given: Mapping[str, Any] = content.session_start_info.hparams
            return {
                name: getattr(one, one.WhichOneof("kind") or "string_value") for name, one in given.items()
            }
    return {}


def _event_values(folder: Path) -> Iterator[tuple[int, Any, str]]:
    """(step, value, name of its plugin) of each value in the event files of a folder, in their order."""
    check_installed("tensorboard", "tensorboard", f"{folder}: reading event files of TensorBoard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    kinds: dict[str, str] = {}  # only the first value of a tag has it
    for path in sorted(folder.glob(EVENTS)):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                yield event.step, value, kinds.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
