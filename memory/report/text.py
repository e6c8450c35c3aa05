"""The pieces of a report in a terminal: plain lines, so that they read well in a log too."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from experiment_utils.quantities import format_bytes, format_change

_BLOCKS, _PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Lines of a table; the first `left` columns stand left, the others right."""
    cells = [[_plain(cell) for cell in row] for row in (titles, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def sparkline(points: Sequence[tuple[float, float | None]], highest: float, width: int = 60) -> str:
    """(x, value) in order of x as blocks from 0 to `highest`: of equally long stretches of x the most.

    A stretch without a value looks like the one before it.
    """
    known = [(x, value) for x, value in points if value is not None]
    if not known:
        return ""
    begin, end = known[0][0], known[-1][0]
    most: dict[int, float] = {}
    for x, value in known:
        place = min(width - 1, int((x - begin) / (end - begin) * width)) if end > begin else 0
        most[place] = max(value, most.get(place, value))
    line, now, blocks = "", 0.0, _blocks()
    for place in range(max(most) + 1):
        now = most.get(place, now)
        share = min(1.0, max(0.0, now / highest)) if highest > 0 else 0.0
        line += blocks[min(len(blocks) - 1, math.floor(share * len(blocks)))]
    return line


def _blocks() -> str:
    """Where standard output is Latin-1 or ASCII it has no blocks."""
    try:
        _BLOCKS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_BLOCKS
    return _BLOCKS


def amount(n: int | None) -> str:
    return "-" if n is None else format_bytes(n)


def change(n: int | None) -> str:
    return "-" if n is None else format_change(n)


def _plain(cell: str) -> str:
    """A name in one line, and without what would move a terminal's cursor."""
    return "".join(c if c.isprintable() else "?" for c in cell)
