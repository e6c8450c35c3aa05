"""log.txt and the terminal: every line goes to both, the file keeps all attempts."""

from __future__ import annotations

import faulthandler
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from experiment_utils.display import ProgressLine, can_rewrite
from memory import fitted
from memory.record.stage_line import COLUMNS
from training.report.progress_line import MOVING, AboveMovingLine

Filter = Callable[[logging.LogRecord], bool]

STAGE_LINE_EVERY_S = 30.0
"""The terminal gets each stage's first line, then one at most this often; the file gets them all."""
_LEAK_KIND = re.compile(r"  (shm |GPU |)\+\S+ \S+/step, LEAK")


@contextmanager
def log_to(
    path: Path,
    *,
    terminal: bool,
    in_file_if: Filter | None = None,
    on_terminal_if: Filter | None = None,
) -> Iterator[None]:
    """Within the block all logging goes to the file `path` (appended, each line at once) and, with
    `terminal`, to stdout; errors to stderr. Where stdout is a terminal, progress is one line that moves. Of
    several runs in a process lines that a filter lets through.

    A crash of the interpreter (segmentation fault) leaves its Python stacks in the file too.
    """
    logging.raiseExceptions = False  # a full disk or a closed terminal must not stop the run
    root = logging.getLogger()
    with _opened(path) as file:
        in_file = logging.StreamHandler(file)
        in_file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
        if in_file_if is not None:
            in_file.addFilter(in_file_if)
        handlers: list[logging.Handler] = [in_file]
        line = ProgressLine(sys.stdout) if terminal and can_rewrite(sys.stdout) else None
        if terminal:
            for stream, is_wanted in ((sys.stdout, _is_no_error), (sys.stderr, _is_error)):
                on_terminal = terminal_handler(stream, line)
                on_terminal.addFilter(is_wanted)
                on_terminal.addFilter(_SeldomStages())
                if on_terminal_if is not None:
                    on_terminal.addFilter(on_terminal_if)
                handlers.append(on_terminal)
        if line is not None:
            MOVING.addHandler(handlers[1])
        for handler in handlers:
            root.addHandler(handler)
        root.setLevel(logging.INFO)
        logging.captureWarnings(True)
        faulthandler.enable(file)
        try:
            yield
        finally:
            faulthandler.disable()
            logging.captureWarnings(False)
            for handler in handlers:
                root.removeHandler(handler)
                MOVING.removeHandler(handler)
            if line is not None:
                with suppress(OSError):
                    line.leave()


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """For appending. What a full disk does not take any more is given up when it is closed."""
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


def terminal_handler(stream: TextIO, line: ProgressLine | None = None) -> logging.Handler:
    """Messages alone; stage lines in 80 columns or fewer. line: moving line that they are written above."""
    handler = logging.StreamHandler(stream) if line is None else AboveMovingLine(stream, line)
    handler.setFormatter(_MessageOnly(stream))
    return handler


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _is_no_error(record: logging.LogRecord) -> bool:
    return not _is_error(record)


class _SeldomStages(logging.Filter):
    """Lets through the stage lines (logger `memory`) that say something new: a first one, then seldom, and
    the first one with a leak of each kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown_at: dict[str, float] = {}
        self._leaks: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name != "memory" or record.levelno > logging.INFO:
            return True
        stage = record.getMessage().split()[1]
        now = time.monotonic()
        new_leaks = set(_LEAK_KIND.findall(record.getMessage())) - self._leaks
        if not new_leaks and now - self._shown_at.get(stage, -STAGE_LINE_EVERY_S) < STAGE_LINE_EVERY_S:
            return False
        self._leaks |= new_leaks
        self._shown_at[stage] = now
        return True


class _MessageOnly(logging.Formatter):
    """Leaves tracebacks to the file: the terminal gets the message, which says where the rest is."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.name != "memory":
            return message
        columns = shutil.get_terminal_size().columns if self._stream.isatty() else COLUMNS
        return fitted(message, min(COLUMNS, columns))
