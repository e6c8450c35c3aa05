"""The files of one run folder as plain values, in whatever state a run left them.

Reading never raises because of what a file holds: a killed run leaves half a line, a full disk an empty file,
a queued run no file at all. The layout is in docs/run-folder.md. Unknown keys and columns are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from experiment_utils import lock_file
from experiment_utils.atomic_files import Unreadable
from experiment_utils.errors import UserError
from experiment_utils.json_values import at_path, finite, is_number, mapping, mappings, parse_json, text
from experiment_utils.metrics_file import Tail, read_columns, read_tail
from experiment_utils.safe_read import plain_only, read_plain

WHOLE, ABSENT, DAMAGED, UNREADABLE = "whole", "absent", "damaged", "unreadable"
ATTEMPTS = "attempts"
"""Folder for the files of earlier attempts: RUN/attempts/N."""
_T = TypeVar("_T")
_CHECKPOINT = re.compile(r"^step-(\d+)$")
_MOST_BYTES = 16 << 20
"""A longer line is no record: a file without line ends is not kept in memory."""
_MOST_NESTED = 5_000
"""YAML marks that can open a level. libyaml recurses for each, and some 10,000 levels end the process."""


@dataclass(frozen=True)
class FileContent:
    """A JSON or YAML file of a run folder."""

    path: str | Path
    state: str
    """WHOLE, ABSENT, DAMAGED or UNREADABLE."""
    value: dict[str, Any] = field(default_factory=dict)
    """The object that the file holds. Of a damaged file what can be read of it, often nothing."""
    why: str = ""
    """The reason why it is not whole."""
    error: OSError | None = None

    def readable(self) -> FileContent:
        """This file.

        Raises:
            Unreadable: it exists and cannot be read.
        """
        if self.error is not None and self.state == UNREADABLE:
            raise Unreadable(self.path, self.error)
        return self


def read_file(path: str | Path) -> FileContent:
    """Read a file that holds one object: YAML if its name ends in .yaml, else JSON. Never raises."""
    try:
        content = read_plain(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        return FileContent(path, ABSENT, why=error.strerror or str(error), error=error)
    except OSError as error:
        return FileContent(path, UNREADABLE, why=error.strerror or str(error), error=error)
    parse = _parse_yaml if str(path).endswith(".yaml") else parse_json
    state, why, value = WHOLE, "", None
    try:
        value = parse(content)
    except ValueError as error:
        state, why = DAMAGED, str(error)
        value = _despite_bytes(content, parse)
    if not isinstance(value, dict):
        state, why, value = DAMAGED, why or "no keys in it", {}
    return FileContent(path, state, value, why)


def _despite_bytes(content: bytes, parse: Callable[[bytes], Any]) -> Any:
    """Parse a file with its bytes that are not UTF-8 replaced; None if that does not help."""
    replaced = content.decode(errors="replace").encode()
    try:
        return None if replaced == content else parse(replaced)
    except ValueError:
        return None


class RunFolder:
    """The files of one run; each is read when it is first asked for, and once. Absent files read as empty.

    path: The folder. damage: A line for each file read so far that is not whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []
        self._files: dict[str, FileContent] = {}

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.name or self.path.resolve().name

    def file(self, name: str) -> FileContent:
        """The content of a file with one JSON or YAML object, read once."""
        if name not in self._files:
            found = self._files[name] = read_file(f"{self.path}/{name}")
            if found.why and found.state != ABSENT:
                self.note_damage(f"{_shown(name)} cannot be read: {found.why.splitlines()[0]}")
        return self._files[name]

    @property
    def config(self) -> dict[str, Any]:
        """config.yaml: the resolved configuration."""
        return self.file("config.yaml").value

    @property
    def run(self) -> dict[str, Any]:
        """run.json: identity, plan, data, results, attempts."""
        return self.file("run.json").value

    @property
    def status(self) -> dict[str, Any]:
        """status.json, written by the run: state, stage, step, attempt, heartbeat, reason."""
        return self.file("status.json").value

    @property
    def outcome(self) -> dict[str, Any]:
        """outcome.json, written by the supervisor: how an attempt ended, and the highest U it saw."""
        return self.file("outcome.json").value

    @property
    def holder(self) -> lock_file.Holder | None:
        """The process that holds the lock, on any machine; None without one, or if the lock is damaged."""
        try:
            return lock_file.read_holder(self.path / "run.lock", f"the run folder {self.path}")
        except UserError:
            return None

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Records of the attempts in run.json, oldest first."""
        return mappings(self.run.get("attempts"))

    def attempt_folders(self) -> list[Path]:
        """Folders with files of earlier attempts, oldest first. Older versions kept all in the run folder."""
        try:
            found = [path for path in (self.path / ATTEMPTS).iterdir() if path.name.isdecimal()]
        except OSError:
            return []
        return sorted(found, key=lambda path: int(path.name))

    @property
    def ring_path(self) -> Path:
        """memory.ring: the samples of the supervisor, of the last attempt."""
        return self.path / "memory.ring"

    def setting(self, path: str) -> Any:
        """Value of the configuration at a path such as `optimizer.lr`, None if it is missing."""
        return at_path(self.config, path)

    def fact(self, path: str) -> Any:
        """Value of run.json at a path such as `data.tokens`, None if it is missing."""
        return at_path(self.run, path)

    def number(self, path: str) -> int | float | None:
        """A finite number of run.json, or else of the configuration, at this path."""
        for value in (self.fact(path), self.setting(path)):
            if is_number(value) and finite(value) is not None:
                return value
        return None

    @property
    def device(self) -> str | None:
        """Name of the GPU of the newest attempt (`cuda` if it was not recorded), or `cpu`."""
        kind = self.fact("auto.device")
        name = at_path(self.attempts[-1], "device.name") if self.attempts else None
        found = name if kind == "cuda" and name is not None else kind
        return None if found is None else str(found)

    @property
    def own_metrics(self) -> dict[str, str]:
        """Registered metrics of the run: name to unit, which may be empty."""
        found = mapping(self.fact("metrics"))
        return {str(name): text(mapping(one).get("unit")) for name, one in found.items()}

    @cached_property
    def checkpoint_step(self) -> int | None:
        """Step of the newest checkpoint, from which the run would resume; None without one."""
        try:
            names = [path.name for path in (self.path / "checkpoints").iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.note_damage(f"checkpoints cannot be read: {error.strerror}")
            return None
        return max((int(match[1]) for name in names if (match := _CHECKPOINT.match(name))), default=None)

    @cached_property
    def metrics(self) -> dict[str, list[float]]:
        """metrics.csv by column, all of one length; a blank is nan."""
        found = self._of_metrics(read_columns)
        if found is None:
            return {}
        self._note_lines("metrics.csv", found.torn)
        return found.values

    @cached_property
    def metrics_tail(self) -> Tail:
        """The end of metrics.csv."""
        found = self._of_metrics(read_tail)
        if found is None:
            return Tail((), None)
        if found.torn:
            self.note_damage(f"metrics.csv: {found.torn} of its last lines passed over, torn or not numbers")
        return found

    def _of_metrics(self, read: Callable[[str], _T]) -> _T | None:
        try:
            return read(f"{self.path}/metrics.csv")
        except FileNotFoundError:
            return None
        except OSError as error:
            self.note_damage(f"metrics.csv cannot be read: {error.strerror}")
            return None

    def column(self, name: str) -> list[float]:
        """A column of metrics.csv; empty if the file lacks it."""
        return self.metrics.get(name, [])

    @cached_property
    def all_evals(self) -> list[dict[str, Any]]:
        """Records of evals.jsonl with numbers as `step`, `tokens` and `loss`, those of sources included."""
        return [
            record
            for record in self.json_lines("evals.jsonl")
            if all(map(is_number, map(record.get, ("step", "tokens", "loss"))))
        ]

    @property
    def evals(self) -> list[dict[str, Any]]:
        """One record for each evaluation, without those of one source of a mixture."""
        return [record for record in self.all_evals if "/" not in str(record.get("source"))]

    @cached_property
    def stage_records(self) -> list[dict[str, Any]]:
        """Stage records of rank 0, all attempts: one at the begin and one at the end of each stage."""
        names = [f"{place.relative_to(self.path)}/memory.jsonl" for place in self.attempt_folders()]
        return [
            record
            for name in (*names, "memory.jsonl")
            for record in self.json_lines(name)
            if _is_stage_record(record)
        ]

    @property
    def last_stage_records(self) -> list[dict[str, Any]]:
        """Stage records of the newest attempt that has any."""
        newest = max((record["attempt"] for record in self.stage_records), default=0)
        return [record for record in self.stage_records if record["attempt"] == newest]

    def json_lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Objects of a file with one JSON object a line; other lines are passed over and noted as damage."""
        passed_over = 0
        try:
            with open(f"{self.path}/{name}", "rb", opener=plain_only) as file:
                while line := file.readline(_MOST_BYTES):
                    record = _object_or_none(line)
                    if record is not None:
                        yield record
                    else:
                        passed_over += bool(line.strip(b"\0 \r\n"))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.note_damage(f"{_shown(name)} cannot be read: {error.strerror}")
        self._note_lines(name, passed_over)

    def note_damage(self, line: str) -> None:
        """Add a line to `damage`, once."""
        if line not in self.damage:
            self.damage.append(line)

    def _note_lines(self, name: str, count: int) -> None:
        if count:
            lines = f"{count} line{'s' * (count != 1)}"
            self.note_damage(f"{_shown(name)}: {lines} passed over, torn or not numbers")


def _shown(name: str) -> str:
    """Files of rank N are named from the folder of the rank, which is in that of the run."""
    return name.removeprefix("../")


def _is_stage_record(record: dict[str, Any]) -> bool:
    """Whether a record has what every reader relies on; amounts of its snapshot can be missing."""
    return (
        record.get("event") in ("begin", "end")
        and isinstance(record.get("stage"), str)
        and isinstance(record.get("attempt"), int)
        and is_number(record.get("elapsed_s"))
        and isinstance(record.get("snapshot"), dict)
        and isinstance(record.get("depth", 0), int)
        and is_number(record.get("seconds", 0.0))
        and isinstance(record.get("change", {}), dict)
        and isinstance(record.get("error", ""), str)
    )


def _object_or_none(line: bytes) -> dict[str, Any] | None:
    try:
        found = parse_json(line)
    except ValueError:
        found = _despite_bytes(line, parse_json)
    return found if isinstance(found, dict) else None


def _parse_yaml(content: bytes) -> Any:
    """Raises ValueError: it is no YAML, or has keys that are no text (`null: 1`), which JSON cannot have."""
    try:
        import yaml
    except ImportError as error:
        raise ValueError("PyYAML is not installed") from error
    if sum(map(content.count, (b"[", b"{", b"- ", b"? "))) > _MOST_NESTED:
        raise ValueError("nested too deeply")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # five times as fast
    try:
        value = yaml.load(content.decode(), Loader=loader)
        stranger = _key_that_is_no_text(value)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    if stranger is not None:
        raise ValueError(f"a key is {stranger}, not text")
    return value


def _key_that_is_no_text(node: Any) -> str | None:
    if isinstance(node, list):
        return next((found for child in node if (found := _key_that_is_no_text(child))), None)
    if not isinstance(node, dict):
        return None
    stranger = next((repr(key) for key in node if not isinstance(key, str)), None)
    return stranger or _key_that_is_no_text(list(node.values()))
