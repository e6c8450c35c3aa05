"""A line at the end of a terminal that is written over itself, while other lines go past above it.

Only where the stream is a terminal that knows its codes: a file, a pipe and `TERM=dumb` get lines alone.
"""

from __future__ import annotations

import logging
from typing import TextIO

from experiment_utils.display import ProgressLine

MOVES = {"moves": True}
"""`extra` of a record whose line takes the place of the one before it."""

MOVING = logging.getLogger("training.moving")
"""Lines between two that are logged; they go to a terminal alone."""
MOVING.propagate = False
MOVING.setLevel(logging.INFO)

_LEAST_NEEDED = ("grad ", "lr ", "memory ", " tok/s", "val ")
"""How parts begin or end."""


def is_moving() -> bool:
    """Whether there is a terminal whose line moves."""
    return any(isinstance(handler, AboveMovingLine) for handler in MOVING.handlers)


class AboveMovingLine(logging.StreamHandler[TextIO]):
    """Writes records that move as the moving line, and others above it."""

    def __init__(self, stream: TextIO, line: ProgressLine) -> None:
        super().__init__(stream)
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        if not getattr(record, "moves", False):
            self._line.clear()
            super().emit(record)
            return
        try:
            self._line.show(narrowed(self.format(record), self._line.columns))
        except Exception:  # a closed terminal must not stop the run
            self.handleError(record)


def narrowed(text: str, columns: int) -> str:
    """A progress line in so many columns: what is needed least goes first, always whole parts, as half of a
    number is another number.
    """
    parts = text.split(" | ")
    for mark in _LEAST_NEEDED:
        if len(" | ".join(parts)) <= columns:
            break
        parts = [part for part in parts if not (part.startswith(mark) or part.endswith(mark))]
    while len(parts) > 1 and len(" | ".join(parts)) > columns:
        parts.pop()
    return " | ".join(parts)[:columns]
