"""Separator and decimal point of a CSV of another program."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

SEPARATORS = (",", ";", "\t", "|")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_BLANKS = re.compile(r"[ \t\v\f]")


@dataclass(frozen=True)
class Dialect:
    """Form of a CSV. With `;` as the separator, a comma in a number is its decimal point."""

    separator: str = ","

    def fields(self, line: str) -> list[str]:
        """Fields of one line, stripped; empty if its quotes are broken."""
        line = line.rstrip("\r\n")
        if '"' not in line:
            found = line.split(self.separator)
        else:
            try:
                found = next(csv.reader([line], delimiter=self.separator), [])
            except csv.Error:  # a bare CR after a quote, as a torn or binary file has it
                return []
        return self._plain(found)

    def records(self, text: str) -> tuple[list[list[str]], int]:
        """(fields of each record that is not blank, number of broken lines).

        A quoted field can hold line ends.
        """
        if '"' not in text:
            lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
            if self.separator != ";" and not _BLANKS.search(text):
                return [line.split(self.separator) for line in lines], 0  # a third of the time
            return [self.fields(line) for line in lines], 0
        reader = csv.reader((f"{line}\n" for line in text.split("\n")), delimiter=self.separator)
        found: list[list[str]] = []
        broken = 0
        while True:
            try:
                fields = next(reader)
            except StopIteration:
                return found, broken
            except csv.Error:  # a bare CR after a quote, as a torn or binary file has it
                broken += 1
                continue
            if any(fields):
                found.append(self._plain(fields))

    def _plain(self, fields: list[str]) -> list[str]:
        stripped = [field.strip() for field in fields]
        return [self._pointed(field) for field in stripped] if self.separator == ";" else stripped

    def _pointed(self, field: str) -> str:
        return field.replace(",", ".") if _DECIMAL_COMMA.fullmatch(field) else field


def number_of(text: str) -> float | None:
    """Number in a field; None if it is blank or text."""
    try:
        return None if "_" in text else float(text)  # only Python reads 1_000 as a number
    except ValueError:
        return None


def dialect_of(header: str, first: str) -> Dialect:
    """Dialect that splits the header and the first row into the most fields, equally many; else a comma.

    A header of words with a `;` or `|` in them is thus not split.
    """
    found, most = Dialect(), 1
    for separator in SEPARATORS:
        dialect = Dialect(separator)
        count = len(dialect.fields(header))
        if count > most and len(dialect.fields(first)) == count:
            found, most = dialect, count
    return found


def repeated(columns: list[str]) -> str | None:
    """First name that two columns have."""
    return next((name for at, name in enumerate(columns) if name and name in columns[:at]), None)
