"""Exit statuses of commands, and the messages for errors that end them."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable

from experiment_utils.errors import UserError
from experiment_utils.typed_here import print_as_typed_here

DONE, FAILED, USER_ERROR, INTERRUPTED = 0, 1, 2, 130
LEASE_LOST = 77
"""Another process has taken this process's run over (`experiment_utils.lease`)."""
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EDQUOT)
"""Refusals by the machine: no fault of the program, so no traceback."""


def exit_status(command: Callable[[], int], interrupted: str = "interrupted") -> int:
    """Run a command and return its exit status; an error that ends it is printed on standard error.

    Args:
        command: returns its exit status.
        interrupted: message on Ctrl-C.
    """
    if sys.stdout is None:  # closed by the caller, which does not read it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a character that it cannot encode is no error
        sys.stdout.reconfigure(errors="backslashreplace")
    print_as_typed_here()
    try:
        try:
            status = command()
        except SystemExit:  # --help, whose text is still in the buffer
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
    """Ask on the terminal; True for yes. Ctrl-D is no."""
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _stdout_refuses() -> bool:
    """Whether nothing can be written to standard output."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return True
    return False
