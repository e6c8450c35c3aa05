"""The last whole row of a metrics.csv, without reading the rows before it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from analysis.reading.dialect import OURS

_TAIL_BYTES = 4 << 10


@dataclass(frozen=True)
class Tail:
    """columns: of the header. row: the last whole row, None where there is none. torn: lines after it that
    are not whole, as a kill or a full disk leaves them.
    """

    columns: tuple[str, ...]
    row: tuple[str, ...] | None
    torn: int = 0


def read_tail(path: Path) -> Tail:
    """The file's header and last whole row. A last line without its end may have lost digits.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
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
            torn = 0 if lines[-1] == b"" and not is_cut else 1
            for line in reversed(lines[:-1]):
                if not line.strip():
                    continue
                row = _fields(line)
                if len(row) == len(header) and all(map(_is_value, row)):
                    return Tail(header, row, torn)
                torn += 1
            if at == begin:
                return Tail(header if any(header) else (), None, torn)
            reach *= 8


def number(text: str) -> float | None:
    """The field as a number, nan included; None where it is blank."""
    return float(text) if text.strip() else None


def last_of(path: Path, column: str) -> float | None:
    """The last value of a column that is blank in most rows, such as an evaluation's; reads the whole file.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        header, *lines = list(file) or [""]
    names = _fields(header.encode())
    if column not in names:
        return None
    place = names.index(column)
    for line in reversed(lines):
        row = _fields(line.encode())
        if line.endswith("\n") and len(row) == len(names) and row[place].strip() and _is_value(row[place]):
            return float(row[place])
    return None


def _fields(line: bytes) -> tuple[str, ...]:
    return tuple(OURS.fields(line.decode("utf-8", errors="replace")))


def _is_value(field: str) -> bool:
    """A number or blank; what a torn line leaves is mostly neither. Text is, if it is plainly text."""
    if not field:
        return True
    try:
        return not math.isnan(float(field)) or field.lower().lstrip("+-") == "nan"
    except ValueError:
        return field[0].isalpha() or field[0] == "/"
