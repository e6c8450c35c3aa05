"""How a CSV of another program is written: what stands between its fields, and what is its decimal point."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

SEPARATORS = (",", ";", "\t", "|")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Dialect:
    """separator: of its fields. Where that is `;` a comma in a number is its decimal point."""

    separator: str = ","

    def fields(self, line: str) -> list[str]:
        """Of one line, without blanks around them; none where its quotes make no sense."""
        line = line.rstrip("\r\n")
        if '"' not in line:
            found = line.split(self.separator)
        else:
            try:
                found = next(csv.reader([line], delimiter=self.separator), [])
            except csv.Error:  # a bare CR behind a quote, as a torn or binary file has it
                return []
        told = [field.strip() for field in found]
        return [self._pointed(field) for field in told] if self.separator == ";" else told

    def _pointed(self, field: str) -> str:
        return field.replace(",", ".") if _DECIMAL_COMMA.fullmatch(field) else field


OURS = Dialect()


def dialect_of(header: str, first: str) -> Dialect:
    """By the header and the first row: what cuts both into the most fields, as many of each; else the comma.

    A header of words with a `;` or `|` in them is so not taken apart.
    """
    found, most = OURS, 1
    for separator in SEPARATORS:
        dialect = Dialect(separator)
        count = len(dialect.fields(header))
        if count > most and len(dialect.fields(first)) == count:
            found, most = dialect, count
    return found


def twice(columns: list[str]) -> str | None:
    """A name that two columns have."""
    return next((name for at, name in enumerate(columns) if name and name in columns[:at]), None)
