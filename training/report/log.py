"""log.txt has every line of all attempts, the terminal what its reader needs.

A run on its own shows where it is, a line for each stage of its memory, and now and then a loss. A run of a
sweep in front shows that it began, and what is wrong with it.
"""

from __future__ import annotations

import faulthandler
import logging
import math
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

IN_FILE = {"screen": "file"}
"""`extra` of a record for log.txt alone."""
ALONE = {"screen": "alone"}
"""`extra` of a record that the terminal does not show of a run of a sweep."""
SELDOM = {"screen": "seldom"}
"""`extra` of such a record of which the terminal shows the first, then one at most every SELDOM_S."""
SELDOM_S = 30.0
_LEAK_KIND = re.compile(r"  (shm |GPU |)\+\S+ \S+/step, LEAK")
_SHARE_OF_LIMIT = re.compile(r" \((\d+)%\)")
_MUCH_PERCENT = 50
"""Share of the memory limit from which a stage is shown of a run of a sweep too."""


@contextmanager
def log_to(
    path: Path,
    *,
    terminal: bool,
    is_brief: bool = False,
    in_file_if: Filter | None = None,
    on_terminal_if: Filter | None = None,
) -> Iterator[None]:
    """Within the block all logging goes to the file `path` (appended, each line at once) and, with
    `terminal`, to stdout; errors to stderr. Where stdout is a terminal, progress is one line that moves. Of
    several runs in a process lines that a filter lets through. is_brief: the run is one of a sweep.

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
                on_terminal = terminal_handler(stream, line, is_brief=is_brief)
                on_terminal.addFilter(is_wanted)
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
                    line.clear() if is_brief else line.leave()


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """For appending. What a full disk does not take any more is given up when it is closed."""
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


def terminal_handler(
    stream: TextIO, line: ProgressLine | None = None, *, is_brief: bool = False
) -> logging.Handler:
    """Messages alone; stage lines in 80 columns or fewer. line: moving line that they are written above.

    is_brief: only what a sweep shows of a run.
    """
    handler = logging.StreamHandler(stream) if line is None else AboveMovingLine(stream, line)
    handler.setFormatter(_MessageOnly(stream))
    handler.addFilter(_OnScreen(is_brief, has_moving_line=line is not None))
    return handler


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _is_no_error(record: logging.LogRecord) -> bool:
    return not _is_error(record)


class _OnScreen(logging.Filter):
    """Lets through what the terminal shows of a run, which is less of one in a sweep (`is_brief`)."""

    def __init__(self, is_brief: bool, *, has_moving_line: bool) -> None:
        super().__init__()
        self._is_brief, self._has_moving_line = is_brief, has_moving_line
        self._stages: set[str] = set()
        self._leaks: set[str] = set()
        self._seldom_at = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.INFO:
            return True
        if record.name == "memory":
            return self._is_new(record.getMessage())
        where = getattr(record, "screen", None)
        if where == IN_FILE["screen"]:
            return False
        if self._is_brief:
            return where is None and (self._has_moving_line or not getattr(record, "moves", False))
        if where == SELDOM["screen"]:
            if time.monotonic() - self._seldom_at < SELDOM_S:
                return False
            self._seldom_at = time.monotonic()
        return True

    def _is_new(self, line: str) -> bool:
        """Whether a stage's line is the first of its stage, or the first with a leak of a kind."""
        leaks = set(_LEAK_KIND.findall(line)) - self._leaks
        share, stage = _SHARE_OF_LIMIT.search(line), line.split()[1]
        is_shown = not self._is_brief or (share is not None and int(share[1]) >= _MUCH_PERCENT)
        is_first = is_shown and stage not in self._stages
        self._leaks |= leaks
        self._stages |= {stage} if is_first else set()
        return is_first or bool(leaks)


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
