"""CSVs that other programs wrote: the runs in each, and facts that its name has."""

from __future__ import annotations

import math
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.reading.dialect import dialect_of, number_of, twice
from analysis.reading.foreign_table import (
    blank_at_the_end,
    has_no_names,
    is_row_a_run,
    name_column,
    settings_among,
    state_of,
    why_no_curve,
)
from experiment_utils.errors import UserError
from memory.files.file_kinds import not_expected

FILE_FACT = "file"
_PART = re.compile(r"\{(\w+)\}|(\*)")
_EXACT = 2**53
"""Whole numbers beyond it are counts that a float holds as well as anything."""
_MOST_LOG10 = 300
_NO_VALUE = ("na", "n/a", "#n/a", "null", "none", "-")
"""What R, spreadsheets and JSON write where a row has no value; nan is a loss that diverged."""


class Pattern:
    """`{model}_lr_{log10_lr}.csv`: a name in braces is a fact, `*` is anything. `log10_lr` also gives `lr`.

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
        """Of a file's name; None where it is not of this pattern. What reads as a number is one."""
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


def writable(name: str) -> str:
    """A file's name; bytes of another encoding than UTF-8, which no text can hold, as `\\udcff`."""
    return name.encode(errors="backslashreplace").decode()


@dataclass(frozen=True)
class ForeignRun:
    """Run of a CSV: its values, and the number of its row if the file is a table of runs."""

    name: str
    values: dict[str, Any]
    row: int | None = None
    state: str | None = None
    damage: tuple[str, ...] = ()


@dataclass(frozen=True)
class ForeignFile:
    """Runs of a CSV. settings: columns that set them apart. why_not: the reason that there are none."""

    runs: tuple[ForeignRun, ...] = ()
    settings: frozenset[str] = frozenset()
    why_not: str | None = None


def read_foreign(path: Path, pattern: Pattern | None, *, rows_are_runs: bool = False) -> ForeignFile:
    """Runs that a CSV of another program has: one, whose curve it is, or one in each row.

    A value of a curve is the last one of its column that is not blank: programs write training and
    validation in rows of their own. A column that is blank in far more rows at the end than between its
    values counts as nan there: pandas writes nan as a blank field.
    """
    facts: dict[str, Any] | None = {}
    name = writable(path.name)
    if pattern is not None:
        facts = pattern.facts(name)
        if facts is None:
            return ForeignFile(why_not=f"its name is not of the pattern {pattern.text}")
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            return ForeignFile(why_not="it is no file")
        if (other := not_expected(path, "a CSV table")) is not None:
            return ForeignFile(why_not=other.removeprefix(f"{path} "))
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
    except OSError as error:
        return ForeignFile(why_not=f"cannot be read: {error.strerror}")
    header, _, rest = text.partition("\n")
    dialect = dialect_of(header, rest.partition("\n")[0])
    columns = dialect.fields(header)
    if not any(columns):
        return ForeignFile(why_not="it is empty")
    if has_no_names(columns):
        return ForeignFile(why_not="its first line has numbers and no names of columns: add a line of names")
    if (column := twice(columns)) is not None:
        return ForeignFile(why_not=f"two of its columns are called {column}")
    records, torn = dialect.records(rest)
    if any(len(row) > 1 and row[:2] == columns[:2] for row in records):
        return ForeignFile(why_not="it has a second header below the first: write a CSV for each attempt")
    rows = [row for row in records if len(row) == len(columns) and not any("\0" in field for field in row)]
    torn += len(records) - len(rows)
    if not rows:
        return ForeignFile(why_not="it has no whole row below its header")
    damage: tuple[str, ...] = (
        (f"{torn} of its lines passed over, torn, or with another number of columns",) if torn else ()
    )
    known = {FILE_FACT: name, **(facts or {})}
    if is_row_a_run(columns, rows, asked=rows_are_runs):
        return _table(writable(path.stem), columns, rows, known, damage)
    why_not = why_no_curve(columns, rows, is_named=pattern is not None)
    if why_not is not None:
        return ForeignFile(why_not=why_not)
    last = {column: _last([row[place] for row in rows]) for place, column in enumerate(columns) if column}
    ended = blank_at_the_end(columns, rows)
    if ended:
        last.update(dict.fromkeys(ended, math.nan))
        damage += (
            f"{_some(ended)} blank in far more rows at the end than between values: nan, as pandas writes it",
        )
    return ForeignFile((ForeignRun(writable(path.stem), {**last, **known}, damage=damage),))


def _table(
    stem: str, columns: list[str], rows: list[list[str]], known: dict[str, Any], damage: tuple[str, ...]
) -> ForeignFile:
    named = name_column(columns, rows)
    found = []
    for number, row in enumerate(rows, 1):
        values = {column: _typed(field) for column, field in zip(columns, row, strict=True) if column}
        name = str(values[named]) if named is not None else f"{stem} row {number}"
        own = damage if number == 1 else ()
        found.append(ForeignRun(name, {**values, **known}, number, state_of(columns, row), own))
    return ForeignFile(tuple(found), settings_among(columns, rows))


def _last(values: list[str]) -> Any:
    """The last value that is not blank; of a column of numbers also not a word for no value, such as NA."""
    there = [value for value in values if value]
    if any(number_of(value) is not None for value in there):
        there = [value for value in there if value.lower() not in _NO_VALUE]
    return _typed(there[-1] if there else "")


def _some(columns: list[str]) -> str:
    """The first two names, and how many more there are."""
    more = f" and {len(columns) - 2} more columns" if len(columns) > 2 else ""
    return f"{' and '.join(columns[:2])}{more} {'is' if len(columns) == 1 else 'are'}"


def _typed(text: str) -> Any:
    """A number where it reads as one, None where it is blank."""
    if not text.strip():
        return None
    value = number_of(text)
    if value is None:
        return text
    is_whole = math.isfinite(value) and value == int(value) and abs(value) <= _EXACT
    return int(value) if is_whole and "e" not in text.lower() else value
