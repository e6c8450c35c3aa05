"""Runs that loggers of other programs left in a folder: Lightning, MLflow, transformers, TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.reading.foreign_formats import EVENTS, ask_database, event_settings
from experiment_utils.json_values import leaves

_DEPTH = 3
"""Folders below the one that was given: project, lightning_logs, version_0."""
_DATABASE = "mlflow.db"
_STATE = "trainer_state.json"
_LIGHTNING = {"metrics.csv", "hparams.yaml"}
_STATES_OF_MLFLOW = {1: "running", 2: "scheduled", 4: "failed", 5: "killed"}
"""Numbers of states in meta.yaml, without that of a run that finished."""
_UNREAD = (
    ("*.wandb", "of W&B",
     "python -c \"import wandb; wandb.Api().run('ENTITY/PROJECT/RUN_ID').history().to_csv('run.csv')\""),
    ("metrics.json", "of OLMo-core, which has only the last values",
     "read the run's event files, or its history as W&B exports it"),
)  # fmt: skip
"""(name of a file that is not read, its program, how to get a CSV)."""
MARKS = frozenset({"hparams.yaml", "metrics.jsonl", _STATE})
"""Files that other programs write next to a config.yaml or metrics.csv of theirs."""


@dataclass(frozen=True)
class Log:
    """A run that another program logged."""

    path: Path
    """File or folder with its curve."""
    name: str
    part: str = ""
    """Which run of a file with several."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = None
    """None if it finished, or if the program does not record it."""
    notes: tuple[str, ...] = ()


def logs_at(place: Path, depth: int = _DEPTH) -> list[Log]:
    """Runs that loggers left in a file, or in a folder and `depth` folders below it, by path.

    Raises:
        NotATable: a database of another program.
        OSError: the folder cannot be read.
    """
    if not place.is_file():
        return list(_below(place, place, depth))
    if place.suffix == ".db":
        return _database_logs(place)
    log = Log(place, place.resolve().parent.name)
    if place.name == "metrics.csv" and (place.parent / "hparams.yaml").is_file():
        return [_with_hparams(log)]
    if place.match(EVENTS):
        return [_event_log(place.parent, log.name)]
    return [log] if place.name == _STATE else []


def is_log(path: Path) -> bool:
    """Whether a file is one that only a logger writes, by its name."""
    return path.name == _STATE or path.suffix == ".db" or path.match(EVENTS)


def _below(folder: Path, place: Path, depth: int) -> Iterator[Log]:
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    names = {path.name for path in inside}
    name = folder.relative_to(place).as_posix()
    name = folder.resolve().name if name == "." else name
    if (state := _newest_state(folder)) is not None:
        yield Log(state, name)
    elif names >= _LIGHTNING:
        yield _with_hparams(Log(folder / "metrics.csv", name))
    elif names >= {"meta.yaml", "metrics"}:
        yield from _mlflow_log(folder)
    elif "metrics.jsonl" in names:
        others = [one for one in names if one.startswith("metrics.") and one.endswith(".jsonl")]
        others.remove("metrics.jsonl")
        notes = [f"{one} is not read with it: give its path to read it alone" for one in sorted(others)]
        yield Log(folder / "metrics.jsonl", name, notes=tuple(notes))
    elif any(path.match(EVENTS) for path in inside):
        yield _event_log(folder, name)
    elif _DATABASE in names:
        yield from _database_logs(folder / _DATABASE)
    elif depth:
        for path in inside:
            if path.is_dir() and not path.is_symlink():
                yield from _below(path, place, depth - 1)


def _newest_state(folder: Path) -> Path | None:
    """The trainer_state.json with the whole history: that of the run, else of its last checkpoint."""
    if (folder / _STATE).is_file():
        return folder / _STATE
    found = {
        int(match[1]): path
        for path in folder.glob(f"checkpoint-*/{_STATE}")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.parent.name))
    }
    return found[max(found)] if found else None


def _with_hparams(log: Log) -> Log:
    """The log with the settings in hparams.yaml of Lightning."""
    settings, notes = _yaml((log.path if log.path.is_dir() else log.path.parent) / "hparams.yaml")
    return replace(log, settings=leaves(settings), notes=(*log.notes, *notes))


def _event_log(folder: Path, name: str) -> Log:
    if (folder / "hparams.yaml").is_file():
        return _with_hparams(Log(folder, name))
    return Log(folder, name, settings=event_settings(folder))


def _mlflow_log(folder: Path) -> Iterator[Log]:
    meta, notes = _yaml(folder / "meta.yaml")
    if meta.get("lifecycle_stage") == "deleted":
        return
    params = folder / "params"
    settings = {
        path.relative_to(params).as_posix(): path.read_text(errors="replace")
        for path in sorted(params.rglob("*"))
        if path.is_file()
    }
    name, state = str(meta.get("run_name") or folder.name), meta.get("status")
    yield Log(folder, name, settings=settings, state=_STATES_OF_MLFLOW.get(state or 0), notes=notes)


def _database_logs(path: Path) -> list[Log]:
    """Runs of a database of MLflow that are not deleted, the first started first."""
    params: dict[str, dict[str, Any]] = {}
    for run, key, value in ask_database(path, "SELECT run_uuid, key, value FROM params"):
        params.setdefault(run, {})[key] = value
    query = "SELECT run_uuid, name, status FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time"
    return [
        Log(path, name or run, run, params.get(run, {}), None if state == "FINISHED" else str(state).lower())
        for run, name, state in ask_database(path, query)
    ]


def _yaml(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(values of a YAML file, notes about what could not be read)."""
    import yaml

    try:
        found = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        return {}, (f"{path.name} cannot be read: {str(error).splitlines()[0]}",)
    return (found, ()) if isinstance(found, dict) else ({}, ())


def unread_format(place: Path) -> str | None:
    """Advice for the first file of a known format that is not read, at a path or up to two folders below."""
    for name, program, advice in _UNREAD:
        if place.is_dir():
            found = next((path for depth in ("", "*/", "*/*/") for path in place.glob(depth + name)), None)
        else:
            found = place if place.match(name) else None
        if found is not None:
            return f"{found.name} {program}: {advice}"
    return None
