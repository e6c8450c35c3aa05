"""metrics.csv as runs leave it: columns by name, and the last rows without reading those before them.

A row counts if it has all of its fields and its line end: a killed run or a full disk leaves others. Blank
fields are nan.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.json_values import csv_number, parse_json
from experiment_utils.safe_read import plain_only, read_plain_text

_TAIL_BYTES = 6 << 10


@dataclass(frozen=True)
class Tail:
    """The end of a file."""

    columns: tuple[str, ...]
    """Names in the header."""
    row: tuple[str, ...] | None
    """The last whole row, None without one."""
    torn: int = 0
    """Lines after that row that are not whole."""
    lines: tuple[bytes, ...] = ()
    """Lines of the end that was read, with line ends only after whole ones."""

    def first(self, names: Sequence[str]) -> dict[str, float] | None:
        """The first row in `lines` with finite numbers in these columns, None without one."""
        return next(filter(None, (self._finite(line, names) for line in self.lines)), None)

    def last(self, names: Sequence[str]) -> dict[str, float] | None:
        """The last row in `lines` with finite numbers in these columns, None without one."""
        return next(filter(None, (self._finite(line, names) for line in reversed(self.lines))), None)

    def _finite(self, line: bytes, names: Sequence[str]) -> dict[str, float] | None:
        row = _fields(line)
        if len(row) != len(self.columns) or not set(names) <= set(self.columns):
            return None
        found = {name: csv_number(row[self.columns.index(name)]) for name in names}
        known = {name: value for name, value in found.items() if value is not None and math.isfinite(value)}
        return known if len(known) == len(names) else None


def read_tail(path: str | Path) -> Tail:
    """Read the header and the end of the file, at least up to its last whole row.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb", opener=plain_only) as file:
        header = _fields(file.readline())
        begin, size = file.tell(), os.fstat(file.fileno()).st_size
        reach = _TAIL_BYTES
        while True:
            at = max(begin, size - reach)
            file.seek(at)
            lines = file.read().split(b"\n")
            if at > begin:
                lines[0] = b""  # its first part was not read
            is_cut = at > begin and len(lines) == 1
            torn = 0 if lines.pop() == b"" and not is_cut else 1
            for line in reversed(lines):
                row = _fields(line)
                if len(row) == len(header) and all(map(_is_value, row)):
                    return Tail(header, row, torn, tuple(lines))
                torn += bool(line.strip())
            if at == begin:
                return Tail(header if any(header) else (), None, torn)
            reach *= 8


@dataclass(frozen=True)
class Columns:
    """Columns of a file."""

    names: tuple[str, ...]
    """Names of all columns, of the header."""
    values: dict[str, list[float]]
    """The columns that were asked for and exist, all of one length."""
    torn: int = 0
    """Lines that were left out."""


def read_columns(path: str | Path, names: Iterable[str] | None = None, *, rows: int | None = None) -> Columns:
    """Read whole columns.

    Args:
        path: The file.
        names: Columns to read; None: all.
        rows: About how many rows to read: some are left out, closer together later in the file, and neither
            the last one nor those of evaluations, whose val_loss is not blank. None: all.

    Raises:
        OSError: the file cannot be read.
    """
    header, *lines = read_plain_text(path).removeprefix("\ufeff").split("\n")
    columns = _fields(header.encode()) if header else ()
    places = {name: columns.index(name) for name in (columns if names is None else names) if name in columns}
    torn = 1 if lines and lines.pop() else 0
    if rows is not None and len(lines) > rows:
        lines = _some(lines, rows, columns.index("val_loss") if "val_loss" in columns else 0)
    found = _at_once(lines, len(columns), list(places.values()))
    if found is None:
        parsed = [_numbers(line, len(columns), list(places.values())) for line in lines]
        whole = [row for row in parsed if row is not None]
        torn += len(parsed) - len(whole)
        found = [list(column) for column in zip(*whole, strict=True)] or [[] for _ in places]
    return Columns(columns, dict(zip(places, found, strict=True)), torn)


def _fields(line: bytes) -> tuple[str, ...]:
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    try:
        found = text.split(",") if '"' not in text else next(csv.reader([text]), [])
    except csv.Error:  # a bare CR after a quote
        return ()
    return tuple(field.strip() for field in found)


def _is_value(field: str) -> bool:
    """A number or blank. Text is one if it is plainly text; what a torn line leaves is mostly neither."""
    if not field:
        return True
    try:
        return not math.isnan(float(field)) or field.lower().lstrip("+-") == "nan"
    except ValueError:
        return field[0].isalpha() or field[0] == "/"


def _numbers(line: str, width: int, places: Sequence[int]) -> list[float] | None:
    fields = line.rstrip("\r").split(",") if '"' not in line else _fields(line.encode())
    if len(fields) != width:
        return None
    try:
        return [float(field) if (field := fields[place]).strip() else math.nan for place in places]
    except ValueError:
        return None


def _at_once(lines: Sequence[str], width: int, places: Sequence[int]) -> list[list[float]] | None:
    """All rows in a third of the time, read as one JSON list. None if one of them is not plainly numbers."""
    if not lines or any(line.count(",") != width - 1 for line in lines):
        return None
    fields = f",{','.join(lines)},".replace(",,", ",null,").replace(",,", ",null,")
    try:
        flat = parse_json(f"[{fields[1:-1]}]".encode())
    except ValueError:
        return None
    if len(flat) != width * len(lines) or not {*map(type, flat)} <= {int, float, type(None)}:
        return None
    return [[math.nan if one is None else float(one) for one in flat[place::width]] for place in places]


def _some(lines: list[str], rows: int, measured: int) -> list[str]:
    """Rows in equal distances, in equal ratios, and those in which the field at `measured` is not blank."""
    count, half = len(lines), rows // 2
    evaluated = [at for at, line in enumerate(lines) if "".join(line.split(",", measured + 1)[measured:-1])]
    kept = {*evaluated[:: max(1, -(-len(evaluated) // rows))], count - 1}
    kept |= {at * (count - 1) // max(1, half - 1) for at in range(half)}
    kept |= {int(count ** (at / max(1, half - 1))) - 1 for at in range(half)}
    return [lines[at] for at in sorted(kept)]
