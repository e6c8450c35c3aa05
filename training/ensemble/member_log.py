"""Log lines of an ensemble: about one run to its own log.txt, about all to each of them and the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from training.report.log import Filter, log_to

ON_TERMINAL = ""
"""Instead of a run's name: lines for the terminal alone."""

_about: str | None = None


@contextmanager
def about(name: str | None) -> Iterator[None]:
    """Log lines of the block for this run; None: for all of them; ON_TERMINAL: for the terminal alone."""
    global _about
    outer, _about = _about, name
    try:
        yield
    finally:
        _about = outer


@contextmanager
def log_to_each(folders: list[Path], *, terminal: bool) -> Iterator[None]:
    """Log to the files of all runs of an ensemble, and to the terminal."""

    def of(name: str) -> Filter:
        return lambda record: _about is None or _about == name

    with ExitStack() as stack:
        for number, folder in enumerate(folders):
            stack.enter_context(
                log_to(
                    folder / "log.txt",
                    terminal=terminal and number == 0,
                    in_file_if=of(folder.name),
                    on_terminal_if=lambda record: _about is None or _about == ON_TERMINAL,
                )
            )
        yield
