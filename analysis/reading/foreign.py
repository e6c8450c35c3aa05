"""Runs of other programs: their names, values and settings, out of CSVs and out of what loggers write."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.reading.csv_table import NotATable, Table
from analysis.reading.dialect import number_of
from analysis.reading.foreign_formats import read_table
from analysis.reading.foreign_logs import Log, logs_at
from analysis.reading.foreign_table import (
    blank_at_the_end,
    chart_columns,
    chart_part,
    is_row_a_run,
    name_column,
    settings_among,
    state_of,
    why_no_curve,
)
from analysis.reading.run import Run
from experiment_utils.errors import UserError

FILE_FACT = "file"
_PART = re.compile(r"\{(\w+)\}|(\*)")
_EXACT = 2**53
"""Larger whole numbers are kept as floats."""
_MOST_LOG10 = 300
_NO_VALUE = ("na", "n/a", "#n/a", "null", "none", "-")
"""Words of R, spreadsheets and JSON for a missing value; nan is a loss that diverged."""


class Pattern:
    """Facts in names of runs: in `{model}_lr_{log10_lr}.csv` a name in braces is a fact, `*` is anything.

    `log10_lr` also gives `lr`.

    Raises:
        UserError: it names no fact, or one twice.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        names = [match[1] for match in _PART.finditer(text) if match[1]]
        if not names or len(set(names)) < len(names) or not all(map(str.isidentifier, names)):
            raise UserError(
                f"--pattern {text}: expected names in braces, each once and none with a digit first, such as "
                "'{model}_lr_{log10_lr}.csv' for 64d_lr_-2.5.csv",
                code="pattern",
            )
        self.names = frozenset(names) | {name.removeprefix("log10_") for name in names}
        regex, at = "", 0
        for match in _PART.finditer(text):
            regex += re.escape(text[at : match.start()])
            regex += f"(?P<{match[1]}>.+?)" if match[1] else ".*?"
            at = match.end()
        self._regex = re.compile(regex + re.escape(text[at:]))

    def facts(self, name: str) -> dict[str, Any] | None:
        """Facts in a name, numbers as numbers; None if it does not match."""
        match = self._regex.fullmatch(name)
        if match is None:
            return None
        found: dict[str, Any] = {fact: _typed(text) for fact, text in match.groupdict().items()}
        for fact, value in list(found.items()):
            if fact.startswith("log10_"):
                if not isinstance(value, float | int) or not abs(value) < _MOST_LOG10:
                    return None
                found[fact.removeprefix("log10_")] = 10.0**value
        return found


@dataclass
class ForeignRuns:
    """Runs of other programs in a file or folder."""

    runs: list[Run] = field(default_factory=list)
    settings: set[str] = field(default_factory=set)
    """Columns that set them apart."""
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    """(file, why it has no run)."""


def read_foreign(place: Path, pattern: Pattern | None, *, rows_are_runs: bool = False) -> ForeignRuns:
    """Runs of other programs in a file or folder.

    A value of a curve is the last one of its column that is not blank, because programs write training and
    validation in rows of their own. A column of a CSV that is blank in far more rows at the end than between
    its values counts as nan, because pandas writes nan as a blank field.

    Args:
        place: A file, a folder with CSVs, or a folder of a logger; its runs can be up to three folders down.
        pattern: Facts in the name of each run: of a CSV the file's name, else the run's.
        rows_are_runs: Each row of a CSV is a run.
    """
    found = ForeignRuns()
    try:
        logs = logs_at(place, depth=0)
        files = [] if logs else [place] if place.is_file() else sorted(filter(is_table, place.iterdir()))
        logs = logs or ([] if files else logs_at(place))
    except OSError as error:
        found.skipped.append((place, f"cannot be read: {error.strerror}"))
        return found
    except NotATable as error:
        found.skipped.append((place, str(error)))
        return found
    for log in [*logs, *(Log(path, _writable(path.stem)) for path in files)]:
        try:
            found.runs += _runs(log, found.settings, pattern, rows_are_runs, is_file=not logs)
        except NotATable as error:
            found.skipped.append((log.path, str(error)))
        except OSError as error:
            found.skipped.append((log.path, f"cannot be read: {error.strerror}"))
    return found


def is_table(path: Path) -> bool:
    """Whether a file is a CSV or has JSON lines, by its name."""
    return path.suffix.lower() in (".csv", ".jsonl")


def _runs(
    log: Log, settings: set[str], pattern: Pattern | None, rows_are_runs: bool, *, is_file: bool
) -> list[Run]:
    """Runs in a log or, if `is_file`, in a file that is a curve, a chart, or a table of runs."""
    table = read_table(log.path, log.part)
    if is_file and (chart := chart_columns(table.columns)):
        logs = [replace(log, name=name, part=name) for name in chart]
        return [_run(one, chart_part(table, one.part), _facts(pattern, one.name)) for one in logs]
    facts = _facts(pattern, _writable(log.path.name) if is_file else log.name)
    if is_file and is_row_a_run(table, asked=rows_are_runs):
        settings |= settings_among(table)
        return _rows(log.name, log.path, table, facts)
    is_checked = is_file or log.path.suffix == ".jsonl"
    why_not = why_no_curve(table, is_named=not is_file or pattern is not None) if is_checked else None
    if why_not is not None:
        raise NotATable(why_not)
    settings |= set(log.settings)
    return [_run(log, table, facts, blank_is_nan=is_file and log.path.suffix.lower() == ".csv")]


def _facts(pattern: Pattern | None, name: str) -> dict[str, Any]:
    facts = {} if pattern is None else pattern.facts(name)
    if pattern is not None and facts is None:
        raise NotATable(f"its name is not of the pattern {pattern.text}")
    return facts or {}


def _run(log: Log, table: Table, facts: Mapping[str, Any], *, blank_is_nan: bool = False) -> Run:
    values = {name: _last(table.column(name)) for name in table.columns if name}
    damage = [*_torn(table), *log.notes]
    if blank_is_nan and (ended := blank_at_the_end(table)):
        values |= dict.fromkeys(ended, math.nan)
        damage.append(
            f"{_some(ended)} blank in far more rows at the end than between values: nan, as pandas writes it"
        )
    settings = {name: _typed(one) if isinstance(one, str) else one for name, one in log.settings.items()}
    values |= {**settings, FILE_FACT: _writable(log.path.name), **facts}
    folder = Path(f"{log.path}:{log.part}") if log.part else log.path
    return Run(
        log.name, folder, log.state, None, values, damage=tuple(damage), is_ours=False, file=log.path,
        part=log.part,
    )  # fmt: skip


def _rows(stem: str, path: Path, table: Table, facts: Mapping[str, Any]) -> list[Run]:
    """A run for each row."""
    named = name_column(table)
    found = []
    for number, row in enumerate(table.rows, 1):
        values = {column: _typed(one) for column, one in zip(table.columns, row, strict=True) if column}
        name = str(values[named]) if named is not None else f"{stem} row {number}"
        values |= {FILE_FACT: _writable(path.name), **facts}
        damage = tuple(_torn(table)) if number == 1 else ()
        state = state_of(table.columns, row)
        found.append(
            Run(
                name, Path(f"{path}:{number}"), state, None, values, damage=damage, is_ours=False, is_row=True
            )
        )
    return found


def _writable(name: str) -> str:
    """A file's name; bytes that are no UTF-8 as `\\udcff`, which every text can hold."""
    return name.encode(errors="backslashreplace").decode()


def _torn(table: Table) -> list[str]:
    if not table.torn:
        return []
    return [f"{table.torn} of its lines passed over, torn, or with another number of columns"]


def _last(values: Sequence[str]) -> Any:
    """The last value that is not blank; in a column of numbers, words for a missing value count as blank."""
    there = [value for value in values if value]
    if any(number_of(value) is not None for value in there):
        there = [value for value in there if value.lower() not in _NO_VALUE]
    return _typed(there[-1] if there else "")


def _some(columns: list[str]) -> str:
    """First two names, and how many more there are."""
    more = f" and {len(columns) - 2} more columns" if len(columns) > 2 else ""
    return f"{' and '.join(columns[:2])}{more} {'is' if len(columns) == 1 else 'are'}"


def _typed(text: str) -> Any:
    """Number that a text is, else the text; None if it is blank."""
    if not text.strip():
        return None
    value = number_of(text)
    if value is None:
        return text
    is_whole = math.isfinite(value) and value == int(value) and abs(value) <= _EXACT
    return int(value) if is_whole and "e" not in text.lower() else value
