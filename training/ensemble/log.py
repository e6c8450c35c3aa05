"""Lines about one run of an ensemble go to its own log.txt, those about all to each and to the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from training.report.log import Filter, log_to

ON_TERMINAL = ""
"""In place of a run's name: lines that no file needs."""

_about: str | None = None


@contextmanager
def about(name: str | None) -> Iterator[None]:
    """Lines of the block are about this run; None: about all of them; ON_TERMINAL: for the terminal alone."""
    global _about
    outer, _about = _about, name
    try:
        yield
    finally:
        _about = outer


@contextmanager
def log_to_each(folders: list[Path], *, terminal: bool) -> Iterator[None]:
    """As `training.report.log.log_to`, for the runs of an ensemble."""

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
