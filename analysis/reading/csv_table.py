"""Rows of one run, or of a table of runs, of another program; and the CSV file that has them."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.reading.dialect import dialect_of, number_of, repeated
from memory.files.file_kinds import not_expected


class NotATable(Exception):
    """A file or folder that has no rows of a run; the text says why."""


@dataclass(frozen=True)
class Table:
    """Columns and rows of texts; a field without a value is empty."""

    columns: list[str]
    rows: list[list[str]]
    torn: int = 0
    """Lines that were left out because they are not whole."""

    def column(self, name: str) -> list[str]:
        """Fields of a column, one for each row."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def only(self, columns: Sequence[str], names: Sequence[str]) -> Table:
        """These columns under other names, and the rows in which any but the first has a value."""
        places = [self.columns.index(name) for name in columns]
        rows = [[row[place] for place in places] for row in self.rows]
        return Table(list(names), [row for row in rows if any(row[1:])], self.torn)


def read_csv(path: Path) -> Table:
    """Table of a CSV file with a header.

    Raises:
        NotATable: it is of another kind, empty, or its header cannot be used.
        OSError: it cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would block
        raise NotATable("it is no file")
    if (other := not_expected(path, "a CSV table")) is not None:
        raise NotATable(other.removeprefix(f"{path} "))
    text = path.read_bytes().decode("utf-8-sig", errors="replace")
    header, _, rest = text.partition("\n")
    dialect = dialect_of(header, rest.partition("\n")[0])
    columns = dialect.fields(header)
    if not any(columns):
        raise NotATable("it is empty")
    if all(number_of(field) is not None for field in columns):
        raise NotATable("its first line has numbers and no names of columns: add a line of names")
    if (column := repeated(columns)) is not None:
        raise NotATable(f"two of its columns are called {column}")
    records, torn = dialect.records(rest)
    if any(len(row) > 1 and row[:2] == columns[:2] for row in records):
        raise NotATable("it has a second header below the first: write a CSV for each attempt")
    rows = [row for row in records if len(row) == len(columns)]
    if "\0" in rest:  # a full disk leaves them
        rows = [row for row in rows if not any("\0" in field for field in row)]
    if not rows:
        raise NotATable("it has no whole row below its header")
    return Table(columns, rows, torn + len(records) - len(rows))
