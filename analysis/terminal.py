"""Abilities of a terminal, and the small pieces of a page."""

from __future__ import annotations

import io
import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.padding import Padding
    from rich.text import Text

PAGE_WIDTH = 100
STATE_STYLES = {
    "done": "green", "running": "cyan", "queued": "cyan", "cancelled": "yellow", "stalled": "yellow",
    "failed": "red", "oom": "red", "timeout": "yellow", "preempted": "yellow", "node_failed": "red",
    "never_started": "red", "blocked": "red", "unreadable": "yellow",
}  # fmt: skip
_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.-=+*%#"
_PLAIN_TERMINALS = ("dumb", "linux")
"""Values of TERM whose font may lack block characters."""


@dataclass(frozen=True)
class Terminal:
    """color: escape codes are wanted. unicode: block and line characters can be shown."""

    color: bool = False
    unicode: bool = True
    width: int = PAGE_WIDTH

    @classmethod
    def of_stdout(cls, color: bool | None = None) -> Terminal:
        """Abilities of stdout; colour only on a terminal and without NO_COLOR.

        color: True or False overrules what is found.
        """
        is_terminal = sys.stdout.isatty()
        name = os.environ.get("TERM", "")
        if color is None:
            color = is_terminal and not os.environ.get("NO_COLOR") and name != "dumb"
        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
        unicode = encoding.startswith("utf") and not (is_terminal and name in _PLAIN_TERMINALS)
        width = min(PAGE_WIDTH, shutil.get_terminal_size().columns) if is_terminal else PAGE_WIDTH
        return cls(color, unicode, width)

    def sparkline(self, values: Sequence[float], width: int) -> str:
        """The values as one line of `width` characters at most, lowest to highest block.

        Each character is the mean of its share of the values; where one is not finite it is a blank.
        """
        blocks = _BLOCKS if self.unicode else _ASCII_BLOCKS
        points = _shares(values, width)
        finite = [point for point in points if math.isfinite(point)]
        if not finite:
            return ""
        low, high = min(finite), max(finite)
        top, reach = len(blocks) - 1, (high - low) or 1.0
        return "".join(
            blocks[round((point - low) / reach * top)] if math.isfinite(point) else " " for point in points
        )

    def rule(self, left: str, right: str) -> str:
        """A line across the page with words at both ends."""
        line = "─" if self.unicode else "-"
        filled = self.width - len(left) - len(right) - 8
        return f"{line * 2} {left} {line * max(2, filled)} {right} {line * 2}"

    def print(self, *parts: RenderableType) -> str:
        """The parts, one below the other, as text; words are wrapped only in those that are indented."""
        from rich.padding import Padding

        file = io.StringIO()
        console = self._console(file)
        for part in parts:
            console.print(part, soft_wrap=not isinstance(part, Padding), highlight=False, markup=False)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).rstrip()

    def _console(self, file: io.StringIO) -> Console:
        from rich.console import Console

        return Console(
            file=file,
            width=self.width,
            force_terminal=self.color,
            color_system="standard" if self.color else None,
            no_color=not self.color,
            legacy_windows=False,
            emoji=False,
        )


def heading(title: str, note: str = "") -> Text:
    """The first line of a section."""
    from rich.text import Text

    return Text.assemble((title, "bold"), (f"  {note}" if note else "", "dim"))


def indented(part: str | RenderableType, style: str = "") -> Padding:
    """The part, two columns in. Text is taken as it is, not as rich's markup."""
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(part, style=style) if isinstance(part, str) else part, (0, 0, 0, 2))


def facts(rows: Sequence[tuple[str, str]]) -> Text:
    """A line for each (label, text), however long: what is copied from it must not be broken."""
    from rich.text import Text

    return Text("\n").join(Text.assemble("  ", (f"{label:<12}", "dim"), text) for label, text in rows)


def commands(rows: Sequence[tuple[str, str]], width: int = PAGE_WIDTH) -> Text:
    """Each (command, what it is for) ready to be copied; on two lines if one would be too long."""
    from rich.text import Text

    shorts = [len(command) for command, purpose in rows if len(command) + len(purpose) + 5 <= width]
    lines = []
    for command, purpose in rows:
        if max([len(command), *shorts]) + len(purpose) + 5 <= width:
            lines.append(((f"  {command:<{max(shorts)}}", "bold"), (f"   {purpose}", "dim")))
        else:
            lines.append(((f"  # {purpose}\n", "dim"), (f"  {command}", "bold")))
    return Text("\n").join(Text.assemble(*line) for line in lines)


def _shares(values: Sequence[float], width: int) -> list[float]:
    """Means of at most `width` equal shares of the values, in order."""
    count = min(width, len(values))
    bounds = [round(i * len(values) / count) for i in range(count + 1)] if count else []
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
