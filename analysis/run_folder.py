"""One run folder as plain values, whatever state a run left it in.

Nothing here raises because of what a file holds: a run that was killed leaves a line half written, a
full disk an empty file, a queued run none at all. What had to be passed over stands in
`RunFolder.damage`. The layout is that of docs/run-folder.md; unknown keys and columns are ignored.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from memory.earlier_attempts import earlier_attempts

_CHECKPOINT = re.compile(r"^step-(\d+)$")
_T = TypeVar("_T")


def read_run_folder(folder: Path) -> RunFolder:
    """The run of `folder`; each of its files is read when it is first asked for.

    Raises:
        UserError: there is no such folder.
    """
    folder = Path(folder)
    with atomic_files.reading(folder):
        if not folder.is_dir():
            raise UserError(f"{folder}: no such run folder")
    return RunFolder(folder)


class RunFolder:
    """What a run wrote. Missing files read as empty.

    path: the folder. damage: a line for each file of those read so far that is not whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []

    @property
    def name(self) -> str:
        return self.path.name or self.path.resolve().name

    @cached_property
    def status(self) -> dict[str, Any]:
        """status.json: state, stage, step, attempt, heartbeat, reason."""
        return self._object("status.json", _parse_json)

    @cached_property
    def run(self) -> dict[str, Any]:
        """run.json: identity, plan, data, results, attempts."""
        return self._object("run.json", _parse_json)

    @cached_property
    def supervised(self) -> dict[str, Any]:
        """outcome.json: how an attempt ended, and the highest U that its supervisor saw."""
        return self._object("outcome.json", _parse_json)

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.yaml: the resolved configuration."""
        return self._object("config.yaml", _parse_yaml)

    @cached_property
    def metrics(self) -> dict[str, list[float]]:
        """metrics.csv by column, all of one length; a blank is nan."""
        header, *lines = self._lines("metrics.csv") or [""]
        columns = header.rstrip("\r\n").split(",")
        parsed = [_numbers(line, len(columns)) for line in lines]
        rows = [row for row in parsed if row is not None]
        if len(rows) < len(lines):
            self._passed_over("metrics.csv", len(lines) - len(rows))
        found = list(map(list, zip(*rows, strict=True))) if rows else [[] for _ in columns]
        return dict(zip(columns, found, strict=True)) if header else {}

    @cached_property
    def evals(self) -> list[dict[str, Any]]:
        """evals.jsonl: one record an evaluation, each with a `step`, `tokens` and `loss` that are numbers."""
        return [record for record in self._all_evals if "/" not in str(record.get("source"))]

    @property
    def last_val_losses(self) -> dict[str, float]:
        """Of the last evaluation, name of a mixture's source to its loss; empty where there is no mixture."""
        last = self.evals[-1]["step"] if self.evals else None
        return {
            str(record["source"]).partition("/")[2]: record["loss"]
            for record in self._all_evals
            if record["step"] == last and "/" in str(record.get("source"))
        }

    @cached_property
    def _all_evals(self) -> list[dict[str, Any]]:
        return [
            record
            for record in self._records("evals.jsonl")
            if all(isinstance(record.get(key), int | float) for key in ("step", "tokens", "loss"))
        ]

    @cached_property
    def memory(self) -> list[dict[str, Any]]:
        """memory.jsonl: one record at the begin and one at the end of each stage, all attempts."""
        places = (*earlier_attempts(self.path), self.path)
        names = [str((place / "memory.jsonl").relative_to(self.path)) for place in places]
        return [record for name in names for record in self._records(name) if _is_stage_record(record)]

    @property
    def last_attempt_memory(self) -> list[dict[str, Any]]:
        """The records of the newest attempt that has any."""
        newest = max((record["attempt"] for record in self.memory), default=0)
        return [record for record in self.memory if record["attempt"] == newest]

    @cached_property
    def checkpoint_step(self) -> int | None:
        """Step of the newest checkpoint, from which the run would go on; None without one."""
        try:
            names = [path.name for path in (self.path / "checkpoints").iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.damage.append(f"checkpoints cannot be read: {error.strerror}")
            return None
        return max((int(match[1]) for name in names if (match := _CHECKPOINT.match(name))), default=None)

    @property
    def attempts(self) -> int:
        """How many attempts have begun."""
        attempts = self.run.get("attempts")
        return len(attempts) if isinstance(attempts, list) else 0

    @property
    def device(self) -> str | None:
        """Name of the GPU of the newest attempt (`cuda` if it was not recorded), or `cpu`."""
        attempts = self.run.get("attempts")
        newest = attempts[-1] if isinstance(attempts, list) and attempts else None
        name, kind = _at(newest, "device.name"), self.fact("auto.device")
        found = name if kind == "cuda" and name is not None else kind
        return None if found is None else str(found)

    def column(self, name: str) -> list[float]:
        """A column of metrics.csv; empty when the file lacks it."""
        return self.metrics.get(name, [])

    def setting(self, path: str) -> Any:
        """The value of a config path such as `optimizer.lr`; None where the config lacks it."""
        return _at(self.config, path)

    def fact(self, path: str) -> Any:
        """A value of run.json such as `data.tokens`; None where it lacks it."""
        return _at(self.run, path)

    def number(self, path: str) -> int | float | None:
        """A value of run.json, or else of config.yaml, that is a finite number; None where there is none."""
        values = (_at(self.run, path), _at(self.config, path))
        numbers = (value for value in values if isinstance(value, int | float) and math.isfinite(value))
        return next(numbers, None)

    def _object(self, name: str, parse: Callable[[str], Any]) -> dict[str, Any]:
        text = self._text(name)
        if text is None:
            return {}
        try:
            value = parse(text)
        except (ValueError, RecursionError) as error:
            self.damage.append(f"{name} cannot be read: {_first_line(error)}")
            return {}
        if not isinstance(value, dict):
            self.damage.append(f"{name} cannot be read: it holds no table of keys")
            return {}
        return value

    def _records(self, name: str) -> list[dict[str, Any]]:
        lines = [line for line in self._lines(name) if line.strip()]
        records = [record for line in lines if isinstance(record := _json_or_none(line), dict)]
        if len(records) < len(lines):
            self._passed_over(name, len(lines) - len(records))
        return records

    def _lines(self, name: str) -> list[str]:
        """The file's lines with their ends; the last one lacks it where a kill cut it short."""
        # not str.splitlines, which splits at more characters than a file does
        return list(io.StringIO(self._text(name) or ""))

    def _text(self, name: str) -> str | None:
        try:
            with open(f"{self.path}/{name}", "rb") as file:
                return file.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            self.damage.append(f"{name} cannot be read: {error.strerror}")
            return None

    def _passed_over(self, name: str, lines: int) -> None:
        self.damage.append(f"{name}: {lines} line{'s' * (lines != 1)} passed over, torn or not numbers")


def _at(node: Any, path: str) -> Any:
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _numbers(line: str, expected: int) -> list[float] | None:
    """The row, or None where it is torn: a last line without its end may have lost digits."""
    fields = line.rstrip("\r\n").split(",")
    if len(fields) != expected or not line.endswith("\n"):
        return None
    try:
        return [float(field) if field else math.nan for field in fields]
    except ValueError:
        return None


def _parse_json(text: str) -> Any:
    """In a third of the time of Python's own parser, which decides what orjson refuses: NaN for one."""
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def _json_or_none(line: str) -> Any:
    try:
        return _parse_json(line)
    except (ValueError, RecursionError):
        return None


def _is_stage_record(record: dict[str, Any]) -> bool:
    """Whether what every reader relies on is of its kind; amounts of the snapshot may be missing."""
    return (
        record.get("event") in ("begin", "end")
        and isinstance(record.get("stage"), str)
        and isinstance(record.get("attempt"), int)
        and isinstance(record.get("elapsed_s"), int | float)
        and isinstance(record.get("snapshot"), dict)
        and isinstance(record.get("depth", 0), int)
        and isinstance(record.get("seconds", 0.0), int | float)
        and isinstance(record.get("change", {}), dict)
        and isinstance(record.get("error", ""), str)
    )


def _parse_yaml(text: str) -> Any:
    import yaml

    try:
        value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if (stranger := _key_that_is_no_text(value)) is not None:
        raise ValueError(f"a key is {stranger}, not text")
    return value


def _key_that_is_no_text(node: Any) -> str | None:
    """YAML, other than JSON, takes any value as a key: `null: 1`."""
    if isinstance(node, list):
        return next((found for child in node if (found := _key_that_is_no_text(child))), None)
    if not isinstance(node, dict):
        return None
    stranger = next((repr(key) for key in node if not isinstance(key, str)), None)
    return stranger or _key_that_is_no_text(list(node.values()))


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
