"""One screen: rows with a label and a table of processes, cut to the size of the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiment_utils.display import table
from experiment_utils.quantities import format_bytes
from experiment_utils.typed_here import wrap
from memory.measure.process import Process
from memory.record.samples import ProcessSample

NEAR = 0.92
"""Share of a limit from which a kill is seldom far (U above 98% came 0.4 to 8 s before it)."""
_HIGH = 0.80
_LABEL = 12
_BAR = 40
_NEVER_CUT = ("!", "not known")
"""Labels of rows that hold a command or a reason."""
_MOST_PROCESSES, _FEWEST_PROCESSES = 10, 5


@dataclass(frozen=True)
class Line:
    """`page cache  400 MB, ...`."""

    label: str
    text: str
    style: str = ""
    """Colour, as rich names it."""
    details: tuple[str, ...] = ()
    """Further lines, left out unless everything is shown."""


@dataclass(frozen=True)
class Screen:
    """Content of the screen of `here` or `watch`."""

    title: str
    rows: list[Line]
    processes: Sequence[Process | ProcessSample] = ()
    """The most important first."""
    heading: str = ""
    """Whose processes these are."""
    last: str = ""
    """Last line: the next command, or when this was measured."""


def draw(
    screen: Screen, *, columns: int | None = None, height: int | None = None, everything: bool = False
) -> list[tuple[str, str]]:
    """Lines of a screen with their styles.

    Args:
        columns: of the terminal; None: lines are not wrapped.
        height: lines of the terminal; the table of processes is cut to fit. None: ten processes.
        everything: all processes, and the details of all rows.
    """
    width = columns or 10_000
    head = [*((line, "bold") for line in wrap(screen.title, width)), ("", "")]
    last = [("", ""), *((line, "") for line in wrap(screen.last, width))] if screen.last else []
    rows = [line for row in screen.rows for line in _row_lines(row, width, everything)]
    most = len(screen.processes) if everything else _MOST_PROCESSES
    if height is not None and not everything:
        # an empty line, the heading, the titles and the count of those left out are next to the processes
        room = height - len(head) - len(last) - (4 if screen.processes else 0)
        if len(rows) > room - min(len(screen.processes), _FEWEST_PROCESSES):
            rows = [
                line
                for row in screen.rows
                for line in _row_lines(row, width, False, is_cut=row.label not in _NEVER_CUT)
            ]
        if len(rows) >= room:
            kept = max(0, room - 2)
            rows = [*rows[:kept], (f"{'':{_LABEL}}{len(rows) - kept} more rows", "")]
        most = min(most, max(1, room - len(rows)))
    return [*head, *rows, *((line[:width], "") for line in _process_lines(screen, most)), *last]


def _row_lines(row: Line, width: int, everything: bool, is_cut: bool = False) -> Iterator[tuple[str, str]]:
    label = f"{row.label:<{_LABEL}}"
    if is_cut:
        text = f"{label}{row.text}"
        yield text if len(text) <= width else f"{text[: width - 3]}...", row.style
        return
    for text in (row.text, *(row.details if everything else ())):
        for line in wrap(text, width, initial_indent=label, subsequent_indent=" " * _LABEL):
            yield line.rstrip(), row.style
        label = " " * _LABEL


def _process_lines(screen: Screen, most: int) -> list[str]:
    if not screen.processes:
        return []
    amounts = ["anon", "shmem", "file", "rss"]
    amounts += [
        name for name in ("pss", "swap") if any(getattr(one, f"{name}_bytes", 0) for one in screen.processes)
    ]
    titles = [{"shmem": "shm", "file": "mapped"}.get(name, name) for name in amounts]
    rows = [
        [*(amount(getattr(one, f"{name}_bytes")) for name in amounts), str(one.pid), one.name]
        for one in screen.processes[:most]
    ]
    left = len(screen.processes) - len(rows)
    shown = table([*titles, "pid", "name"], rows, right=range(len(titles) + 1), indent="  ")
    return ["", screen.heading, *shown, *([f"  and {left} more"] if left > 0 else [])]


def amount(known_bytes: int | None) -> str:
    """`400 MB`; `?` for an unknown amount."""
    return "?" if known_bytes is None else format_bytes(known_bytes)


def percent(part: int, whole: int | None) -> str:
    """`29%`, `<1%`; `?` without a whole."""
    if not whole:
        return "?"
    return f"{100 * part / whole:.0f}%" if part >= whole / 100 else "<1%"


def bar(part: int, whole: int) -> Line:
    """`[####......]`, in the colour of its share."""
    share = min(1.0, part / whole)
    filled = round(_BAR * share)
    style = "red" if share >= NEAR else "yellow" if share >= _HIGH else "green"
    return Line("", f"[{'#' * filled}{'.' * (_BAR - filled)}]", style)
