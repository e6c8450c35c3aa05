"""Rows, amounts and bars of what a command prints on one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiment_utils.quantities import format_bytes
from experiment_utils.typed_here import wrap

LABEL = 12
BAR = 40
NEAR = 0.92
"""Of a limit: from there on a kill is seldom far (U above 98% came 0.4 to 8 s before it)."""
_GAPS_OF_A_TABLE = 4


def wrapped(line: str, columns: int) -> Iterator[str]:
    """A line for a terminal of so many columns; what goes on stands below its text. A table's row stays."""
    if len(line) <= columns or line.count("  ") > _GAPS_OF_A_TABLE:
        yield line
        return
    own = len(line) - len(line.lstrip())
    indent = " " * (own + 2 if own or line[LABEL - 1 : LABEL].strip() else LABEL)
    yield from wrap(line, columns, subsequent_indent=indent)


def row(label: str, text: str) -> str:
    """`page cache  400 MB, ...`."""
    return f"{label:<{LABEL}}{text}".rstrip()


def amount(known_bytes: int | None) -> str:
    """`400 MB`; `?` for what is not known."""
    return "?" if known_bytes is None else format_bytes(known_bytes)


def percent(part: int, whole: int | None) -> str:
    """`29%`, `<1%`."""
    if not whole:
        return "?"
    return f"{100 * part / whole:.0f}%" if part >= whole / 100 else "<1%"


def bar(part: int, whole: int) -> str:
    """`[####......]`."""
    filled = min(BAR, round(BAR * part / whole))
    return f"[{'#' * filled}{'.' * (BAR - filled)}]"


def age(seconds: float) -> str:
    """`3 days`, `50 minutes`."""
    steps: Sequence[tuple[float, str]] = ((86400, "days"), (3600, "hours"), (60, "minutes"))
    for length, name in steps:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(0.0, seconds):.0f} seconds"
