"""Whole lines of a file that is still written, each once."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from experiment_utils.json_values import parse_json
from experiment_utils.safe_read import plain_only

_AT_ONCE_BYTES = 1 << 20


class GrowingFile:
    """Lines that came since they were last asked for. A file that was replaced or cut is read from its
    beginning again; one that is not there has no lines.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode: int | None = None

    def lines(self) -> Iterator[tuple[bool, str]]:
        """(whether it is the file's first, line without its end), of what is there at this call."""
        try:
            file = open(self._path, "rb", opener=plain_only)  # noqa: SIM115
        except FileNotFoundError:
            return iter(())
        status = os.fstat(file.fileno())
        if status.st_ino != self._inode or status.st_size < self._offset:
            self._inode, self._offset = status.st_ino, 0
        return self._read(file, status.st_size)

    def _read(self, file: BinaryIO, end: int) -> Iterator[tuple[bool, str]]:
        with file:
            at_once = _AT_ONCE_BYTES
            while self._offset < end:
                file.seek(self._offset)
                block = file.read(min(at_once, end - self._offset))
                *whole, _ = block.split(b"\n")  # what is not written to its end waits
                if not whole and self._offset + len(block) >= end:
                    return
                at_once = _AT_ONCE_BYTES if whole else 2 * at_once
                for line in whole:
                    is_first, self._offset = self._offset == 0, self._offset + len(line) + 1
                    yield is_first, line.decode("utf-8", errors="replace").rstrip("\r")


class GrowingCsv:
    """Rows of such a file by the names of its header; lines that are not whole rows are passed over."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._columns: list[str] = []

    def rows(self) -> Iterator[dict[str, str]]:
        """The records that came since the last call."""
        return self._rows(self._file.lines())

    def _rows(self, lines: Iterator[tuple[bool, str]]) -> Iterator[dict[str, str]]:
        for is_first, line in lines:
            cells = line.split(",") if '"' not in line else next(csv.reader([line]), [])
            if is_first:
                self._columns = cells
            elif len(cells) == len(self._columns):
                yield dict(zip(self._columns, cells, strict=True))


class GrowingRecords:
    """Objects of a file with one JSON object a line; what is none is passed over."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records that came since the last call."""
        for _, line in self._file.lines():
            try:
                found = parse_json(line.encode())
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found
