"""How a command ends: its exit status, and what is told where it did not end by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from conf.errors import UserError

DONE, FAILED, USER_ERROR, INTERRUPTED = 0, 1, 2, 130


def exit_status(command: Callable[[], int], interrupted: str = "interrupted") -> int:
    """That of the command, or what stands for how it ended, told on standard error.

    interrupted: what is told on Ctrl-C.
    """
    try:
        return command()
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
