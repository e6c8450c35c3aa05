"""Tables, folded lines and progress lines on a terminal and in a log."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Collection, Sequence
from typing import IO

_CLEAR_LINE = "\r\x1b[K"
_STYLE = re.compile(r"\x1b\[[\d;]*m")
_GAP = re.compile(r"(?<=\S)  +(?=\S)")
_NARROWEST = 40
_LEAST_TEXT = 24
"""Columns that are left for the last part of a line, or for the last column of a table, which is folded."""
_ENOUGH_TEXT = 40
"""Characters of that column for which other columns go."""
_LEAST_NAME = 12
GLUE, QUOTED_SPACE = "\0", "\1"
"""Spaces of a command: a line is broken at the first only if the command is longer than a line, at those in
quotes never.
"""


def columns_of(stream: IO[str]) -> int | None:
    """Width of the terminal that the stream is; None for a file or a pipe, whose lines are whole."""
    try:
        if not stream.isatty():
            return None
        width = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, OSError, ValueError):
        return None
    return max(_NARROWEST, width) if width else None


def fold(line: str, columns: int, hang: int = 2) -> list[str]:
    """A line in lines of at most `columns` characters, broken between words.

    What follows the last gap of two spaces or more stays in its column, or begins a line of its own. A
    command, whose spaces are GLUE, stays whole; one longer than a line is continued after a backslash.

    Args:
        line: with or without colours.
        columns: width of the terminal.
        hang: columns by which the lines after the first are indented more than that.
    """
    if _width(line) <= columns:
        return [_spaced(line)]
    indent = len(line) - len(line.lstrip(" "))
    gaps = [found.span() for found in _GAP.finditer(line)]
    if gaps and _width(line[: gaps[-1][1]]) <= columns - _LEAST_TEXT:
        head, rest = line[: gaps[-1][1]], line[gaps[-1][1] :]
        return _filled(head, _words(rest, columns - _width(head)), columns, " " * _width(head))
    if gaps and indent:
        under = " " * (indent + 4)
        rest = under + line[gaps[-1][1] :]
        return [*fold(line[: gaps[-1][0]], columns), *fold(rest, columns)]
    under = " " * (indent + hang)
    return _filled(line[:indent], _words(line[indent:], columns - len(under)), columns, under)


def _words(text: str, room: int) -> list[tuple[str, bool]]:
    """(word, whether a line that ends before it ends in a backslash); a command that fits is a word."""
    found = []
    for word in text.split(" "):
        parts = [word] if _width(word) <= room else word.split(GLUE)
        found += [(GLUE.join(parts[:3]), False), *((part, True) for part in parts[3:])]
    return found


def _filled(head: str, words: Sequence[tuple[str, bool]], columns: int, hang: str) -> list[str]:
    lines, now, is_empty = list[str](), head, True
    for place, (word, is_continued) in enumerate(words):
        reserved = 2 if any(more for _, more in words[place + 1 : place + 2]) else 0
        if not is_empty and _width(now) + 1 + _width(word) + reserved > columns:
            lines.append(f"{now} \\" if is_continued else now.rstrip(" "))
            now, is_empty = f"{hang}    " if is_continued else hang, True
        now += word if is_empty else f" {word}"
        is_empty = False
    return [_spaced(one) for one in [*lines, now]]


def _spaced(line: str) -> str:
    return line.replace(GLUE, " ").replace(QUOTED_SPACE, " ")


def table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    indent: str = "",
    least: Sequence[str] = (),
    columns: int | None = None,
    is_folded: bool = True,
) -> list[str]:
    """Lines of a table, columns two spaces apart; the first line has the titles, if there are any.

    A table that is too wide for the terminal loses columns, named in a last line, until its last column has
    room for its text or for 40 characters of it; that is folded. Then the first column, which names the row,
    loses its beginning.

    Args:
        titles: one for each column, or none.
        rows: cells of each row. Control characters are shown as `?`.
        right: numbers of the columns that are aligned to the right, from 0.
        indent: what each line begins with.
        least: titles of the columns that go, in order. Without any, or if that does not do, the others go
            from the right, but for the first column and a last one of text.
        columns: width to fit into; None: that of the terminal, if standard output is one.
        is_folded: if not, each row is one line: text is cut and no line names the columns that are gone.
    """
    cells = [[_printable(cell) for cell in row] for row in ([titles] if titles else []) + list(rows)]
    widths = [max(_width(cell) for cell in column) for column in zip(*cells, strict=True)]
    shown, gone = [*range(len(widths))], list[str]()
    width = columns or columns_of(sys.stdout)
    if width is not None:
        shown, widths = _fitted(titles, widths, right, least, width - len(indent))
        gone = [title for place, title in enumerate(titles) if place not in shown]
    lines = list[str]()
    for row in cells:
        last, *more = _folded(row[-1], widths[-1], is_folded) if row else [""]
        one = [_cut(row[0], widths[0]), *row[1:-1], last] if len(row) > 1 else [last]
        parts = [_padded(one[place], widths[place], place in right) for place in shown]
        lines.append((indent + "  ".join(parts)).rstrip())
        under = " " * (len(indent) + sum(widths[place] + 2 for place in shown[:-1]))
        lines += [under + text for text in more]
    named = f"not shown in {width} columns: {', '.join(gone)}"
    return [*lines, *(fold(indent + named, width or 0) if gone and is_folded else [])]


def _fitted(
    titles: Sequence[str], widths: list[int], right: Collection[int], least: Sequence[str], room: int
) -> tuple[list[int], list[int]]:
    """(columns that stay, width of each column) in so much room."""
    shown, end = [*range(len(widths))], len(widths) - 1
    is_text = end > 0 and end not in right and widths[end] > _LEAST_TEXT
    others = [*range(end - is_text, 0, -1)]

    def left(*without: int) -> int:
        return room - sum(widths[place] + 2 for place in shown if place not in without) + 2 * (not without)

    def is_too_wide(text: int, cut: int = 0) -> bool:
        return cut + left(end) < min(widths[end], text) if is_text else cut + left() < 0

    for place in [titles.index(title) for title in least if title in titles] or others:
        if is_too_wide(_ENOUGH_TEXT):
            shown.remove(place)
    for place in others:
        if is_too_wide(_LEAST_TEXT, max(0, widths[0] - _LEAST_NAME)) and place in shown:
            shown.remove(place)
    if is_too_wide(_LEAST_TEXT) and shown:
        text = min(widths[end], _LEAST_TEXT) + 2 if is_text else 0
        widths[0] = min(widths[0], max(_LEAST_NAME, left(0, end) - text if is_text else left(0)))
    if is_text:
        widths[end] = min(widths[end], max(_LEAST_TEXT, left(end)))
    return shown, widths


def _cut(cell: str, width: int) -> str:
    return cell if _width(cell) <= width else f"...{cell[3 - width :]}"


def _folded(cell: str, width: int, is_folded: bool) -> list[str]:
    if _width(cell) <= width:
        return [cell]
    return fold(cell, width, 0) if is_folded else [f"{cell[: width - 3]}..."]


def _padded(cell: str, width: int, is_right: bool) -> str:
    space = " " * (width - _width(cell))
    return space + cell if is_right else cell + space


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
        return (columns_of(self._stream) or shutil.get_terminal_size().columns) - 1

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
    text = _STYLE.sub("", cell) if "\x1b" in cell else cell
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
