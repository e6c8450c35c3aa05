"""Tables and progress lines on a terminal and in a log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from typing import IO

_CLEAR_LINE = "\r\x1b[K"


def table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = ""
) -> list[str]:
    """Lines of a table, columns two spaces apart; the first line has the titles, if there are any.

    Args:
        titles: one for each column, or none.
        rows: cells of each row. Control characters are shown as `?`.
        right: numbers of the columns that are aligned to the right, from 0.
        indent: what each line begins with.
    """
    cells = [[_printable(cell) for cell in row] for row in ([titles] if titles else []) + list(rows)]
    columns = [[_width(cell) for cell in column] for column in zip(*cells, strict=True)]
    widths = [max(column) for column in columns]
    return [
        (
            indent
            + "  ".join(
                " " * (width - _width(cell)) + cell if place in right else cell + " " * (width - _width(cell))
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        ).rstrip()
        for row in cells
    ]


def can_rewrite(stream: IO[str]) -> bool:
    """Whether the last line of this stream can be written over: a terminal that knows escape codes."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class ProgressLine:
    """The last line of a terminal that `can_rewrite`; each `show` replaces it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._is_shown = False

    @property
    def columns(self) -> int:
        """Characters that fit without wrapping: a line that wraps cannot be written over."""
        try:
            return (os.get_terminal_size(self._stream.fileno()).columns or 80) - 1
        except (OSError, ValueError):
            return shutil.get_terminal_size().columns - 1

    def show(self, text: str) -> None:
        """Replace the line by `text`, cut to the width of the terminal."""
        self._write(_CLEAR_LINE + text[: self.columns])
        self._is_shown = True

    def clear(self) -> None:
        """Remove the line, so that another one can be printed."""
        self._end(_CLEAR_LINE)

    def leave(self) -> None:
        """Keep the line as it is and end it."""
        self._end("\n")

    def _end(self, text: str) -> None:
        if self._is_shown:
            self._write(text)
        self._is_shown = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _printable(cell: str) -> str:
    return cell if cell.isprintable() else "".join(c if c.isprintable() else "?" for c in cell)


def _width(cell: str) -> int:
    """Columns that the text takes on a terminal."""
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)
