"""log.txt and the terminal: every line goes to both, the file keeps all attempts."""

from __future__ import annotations

import faulthandler
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def log_to(path: Path, *, terminal: bool) -> Iterator[None]:
    """Within the block all logging goes to the file `path` (appended, each line at once) and, with
    `terminal`, to stdout; errors to stderr.

    A crash of the interpreter (segmentation fault) leaves its Python stacks in the file too.
    """
    logging.raiseExceptions = False  # a full disk or a closed terminal must not stop the run
    root = logging.getLogger()
    in_file = logging.FileHandler(path, mode="a", encoding="utf-8")
    in_file.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    handlers: list[logging.Handler] = [in_file]
    if terminal:
        for stream, is_wanted in ((sys.stdout, _is_no_error), (sys.stderr, _is_error)):
            on_terminal = logging.StreamHandler(stream)
            on_terminal.setFormatter(_MessageOnly("%(message)s"))
            on_terminal.addFilter(is_wanted)
            handlers.append(on_terminal)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    faulthandler.enable(in_file.stream)
    try:
        yield
    finally:
        faulthandler.disable()
        logging.captureWarnings(False)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def _is_no_error(record: logging.LogRecord) -> bool:
    return not _is_error(record)


class _MessageOnly(logging.Formatter):
    """Leaves tracebacks to the file: the terminal gets the message, which says where the rest is."""

    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage()
