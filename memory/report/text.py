"""The pieces of a report in a terminal: plain lines, so that they read well in a log too."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from experiment_utils import display
from experiment_utils.quantities import format_bytes
from memory.record.stage_line import format_change

_BLOCKS, _PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Indented lines of a table whose columns are aligned to the right, but the first `left` ones."""
    return display.table(titles, rows, right=range(left, len(titles)), indent="  ")


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
