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
        return self._plain(found)

    def records(self, text: str) -> tuple[list[list[str]], int]:
        """(fields of each record that has some, lines that are none). A quoted field may hold line ends."""
        if '"' not in text:
            return [self.fields(line) for line in text.split("\n") if line.strip()], 0
        reader = csv.reader((f"{line}\n" for line in text.split("\n")), delimiter=self.separator)
        found: list[list[str]] = []
        lost = 0
        while True:
            try:
                fields = next(reader)
            except StopIteration:
                return found, lost
            except csv.Error:  # a bare CR behind a quote, as a torn or binary file has it
                lost += 1
                continue
            if any(fields):
                found.append(self._plain(fields))

    def _plain(self, fields: list[str]) -> list[str]:
        stripped = [field.strip() for field in fields]
        return [self._pointed(field) for field in stripped] if self.separator == ";" else stripped

    def _pointed(self, field: str) -> str:
        return field.replace(",", ".") if _DECIMAL_COMMA.fullmatch(field) else field


OURS = Dialect()


def number_of(text: str) -> float | None:
    """The number that a field is; None where it is blank or text."""
    try:
        return None if "_" in text else float(text)  # 1_000 is a number to Python alone
    except ValueError:
        return None


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
