"""How a command ends: its exit status, and what is told where it did not end by itself."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable

from experiment_utils.errors import UserError
from experiment_utils.typed_here import print_as_typed_here

DONE, FAILED, USER_ERROR, INTERRUPTED = 0, 1, 2, 130
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE)
"""What the machine refuses, wherever it is met: no fault of the program's, so no traceback."""


def exit_status(command: Callable[[], int], interrupted: str = "interrupted") -> int:
    """That of the command, or what stands for how it ended, told on standard error.

    interrupted: what is told on Ctrl-C.
    """
    if sys.stdout is None:  # closed by who started it: nobody wants to read it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # what it cannot hold, a file name say, is no reason to end
        sys.stdout.reconfigure(errors="backslashreplace")
    print_as_typed_here()
    try:
        try:
            status = command()
        except SystemExit:  # --help, whose words still wait to be written
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return status
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None or not _stdout_refuses():
            if error.filename is None or error.errno not in _NOT_OURS:
                raise
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            return USER_ERROR
        if not isinstance(error, BrokenPipeError):  # else the reader, `head` say, has seen enough
            print(f"error: standard output: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again at its end
        return FAILED


def agreed(question: str) -> bool:
    """Whether who sits at the terminal says yes; Ctrl-D is no."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _stdout_refuses() -> bool:
    """Whether not even the end of a line can be written to it."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return True
    return False
