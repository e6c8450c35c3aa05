"""The screen of `watch`: the runs as a table, or the text of a command; what each key does."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiment_utils.typed_here import as_typed_here, wrap
from slurm.commands.status_table import summary, table
from slurm.status.study_status import RunState

Lines = list[tuple[str, str]]
"""Lines of the screen, each with its style as rich names it."""
QUIT = ["quit"]
KEYS = "j/k move  w why  l logs  c cancel  r resubmit  ? help  q quit"
HELP = """\
j, k, arrows   select a run, or scroll a text; page up, page down
w              why: the cause of its state, and what to change
l              logs: the end of what the run and its jobs wrote
c              cancel the run: y confirms
r              resubmit the run: y confirms
q              close a text; quit
?              this help

The table is read again every few seconds: one squeue each time, one sacct every 30 s at most."""
_MOVES = {"k": -1, "j": 1, "page up": -10, "page down": 10}
_STYLES = {
    "done": "green", "running": "bold", "stalled": "yellow", "blocked": "yellow", "oom": "red",
    "failed": "red", "timeout": "red", "node_failed": "red", "never_started": "red", "unreadable": "red",
}  # fmt: skip
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MOST_LINES = 1000
_REASON_LINES = 2


@dataclass
class WatchScreen:
    """State of the view: changed by keys and by news, drawn for a size of the terminal."""

    title: str
    """The study or the token set."""
    given: str
    """The same as an argument of commands."""
    is_set: bool = False
    """Whether it is a token set: it is resubmitted as a whole."""
    entries: Sequence[RunState] = ()
    note: str = "asking for the states ..."
    selected: str | None = None
    """Name of a run."""
    text: list[str] | None = None
    """Output of a command, shown instead of the table."""
    above: int = 0
    """Lines of the text above those that are shown."""
    question: list[str] | None = None
    """A command that waits for `y`."""
    running: list[str] | None = None
    """A command that has not ended; there is one at a time."""
    _wide: dict[int, list[str]] = field(default_factory=dict)
    """Lines of the text, else of the table, by width of the terminal."""

    def news(self, entries: Sequence[RunState]) -> None:
        """Take the states of a look; a client of Slurm that did not answer is named in the header."""
        self.entries, self._wide = entries, {}
        self.note = next((note for entry in entries for note in entry.notes), "")

    def show(self, text: str, *, at_end: bool = False) -> None:
        """Show a text instead of the table, from its beginning or its end."""
        clean = _ESCAPES.sub("", text).splitlines()[-_MOST_LINES:]
        self.text = [as_typed_here(line.expandtabs()) for line in clean] or ["it printed nothing"]
        self.above, self.running, self._wide = len(text) if at_end else 0, None, {}

    def press(self, key: str) -> list[str] | None:
        """Take a key; returns a command of `python -m slurm` to run, QUIT, or None."""
        if self.question is not None:
            question, self.question = self.question, None
            return self._start(*question) if key in ("y", "Y") else None
        if key in _MOVES:
            self._move(_MOVES[key])
        elif key in ("q", "\x1b", "\n", "\r"):
            if self.text is None:
                return QUIT if key == "q" else None
            self.text, self._wide = None, {}
        elif key == "?":
            self.show(HELP)
        elif (run := self._run()) is not None and self.running is None:
            if key in ("w", "l"):
                return self._start("why" if key == "w" else "logs", str(run.folder))
            if key == "c":
                self.question = ["cancel", self.given, run.name, "--yes"]
            elif key == "r":
                self.question = ["resubmit", self.given, *[run.name] * (not self.is_set)]
        return None

    def _start(self, *words: str) -> list[str]:
        self.running = list(words)
        return self.running

    def _run(self) -> RunState | None:
        return self.entries[self._at()] if self.entries else None

    def _at(self) -> int:
        return next((at for at, entry in enumerate(self.entries) if entry.name == self.selected), 0)

    def _move(self, lines: int) -> None:
        if self.text is not None:
            self.above += lines
        elif self.entries:
            self.selected = self.entries[min(len(self.entries) - 1, max(0, self._at() + lines))].name

    def draw(self, columns: int, height: int) -> Lines:
        """Exactly `height` lines of at most `columns` characters."""
        head: Lines = [(line, "bold") for line in wrap(f"{self.title}: {summary(self.entries)}", columns)[:2]]
        head.append((self.note, "yellow"))
        last = ("j/k scroll  q back" if self.text is not None else KEYS, "dim")
        command = self.question or self.running
        if command:
            verb, *words = command
            name = words[1] if len(words) > 1 else Path(words[0]).name or words[0]
            last = (f"{verb} {name}{'? [y/N]' if self.question else ' ...'}", "bold yellow")
        room = height - len(head) - 1
        body = self._table(columns, room) if self.text is None else self._text(columns, room)
        lines = [*head, *body, *[("", "")] * (room - len(body)), last][-height:]
        return [(_fitted(text, columns), style) for text, style in lines]

    def _text(self, columns: int, room: int) -> Lines:
        if columns not in self._wide:
            wrapped = [
                textwrap.wrap(line, columns, drop_whitespace=False, break_on_hyphens=False) or [""]
                for line in self.text or ()
            ]
            self._wide[columns] = [line for lines in wrapped for line in lines]
        lines = self._wide[columns]
        self.above = max(0, min(self.above, len(lines) - room))
        return [(line, "") for line in lines[self.above : self.above + room]]

    def _table(self, columns: int, room: int) -> Lines:
        run = self._run()
        if run is None:
            return []
        if columns not in self._wide:
            self._wide[columns] = table(self.entries, columns)
        header, *rows = self._wide[columns]
        reason = wrap(run.reason or "", columns, subsequent_indent="  ")[:_REASON_LINES]
        room -= 2 + _REASON_LINES  # the header, an empty line
        at = self._at()
        first = max(0, min(at - room // 2, len(rows) - room))
        shown: Lines = [
            (row, "reverse" if number == at else _STYLES.get(self.entries[number].state, ""))
            for number, row in enumerate(rows[first : first + max(1, room)], first)
        ]
        return [(header, "underline"), *shown, ("", ""), *((line, "") for line in reason)]


def _fitted(text: str, columns: int) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in as_typed_here(text))
    return plain if len(plain) <= columns else f"{plain[: columns - 3]}..."
