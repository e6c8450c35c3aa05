"""The process of the command: started with the signals of its starter, and its end repeated."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from memory.supervision.process_settings import disable_core_dump, set_command_score, terminate_with_parent

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class CannotStart(Exception):
    """The command could not be executed. exit_code: as a shell's."""

    def __init__(self, program: str, number: int) -> None:
        missing = number in (errno.ENOENT, errno.ENOTDIR)
        self.exit_code = NOT_FOUND if missing else NOT_EXECUTABLE
        why = "no such command" if missing else os.strerror(number).lower()
        super().__init__(f"{program}: {why}")


def start(
    command: Sequence[str],
    mask: set[Any],
    *,
    environment: Mapping[str, str],
    outputs: tuple[int, ...] = (),
    ends_with_us: bool = False,
) -> int:
    """Start the command; returns its pid.

    Args:
        command: the program, looked for in PATH, and its arguments.
        mask: signals that are blocked in it: those that were in this process, so that one that its starter
            held back waits until the command is ready for it.
        environment: of the command.
        outputs: descriptors that become its stdout and stderr; empty: it has ours.
        ends_with_us: send it SIGTERM when this process ends.

    Raises:
        CannotStart: the program does not exist, or cannot be executed.
        OSError: no pipe or no process can be made.
    """
    read_end, write_end = os.pipe()  # closed by exec: its content is why that failed
    me = os.getpid()
    try:
        child = os.fork()
    except OSError:
        os.close(read_end)
        os.close(write_end)
        raise
    if child == 0:
        _become(command, mask, environment, outputs, me if ends_with_us else None, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        number = pipe.read()
    if number:
        os.waitpid(child, 0)
        raise CannotStart(command[0], int(number))
    return child


def _become(
    command: Sequence[str],
    mask: set[Any],
    environment: Mapping[str, str],
    outputs: tuple[int, ...],
    parent: int | None,
    write_end: int,
) -> None:
    """Execute the command in the forked child; never returns."""
    number = 0
    try:
        for place, descriptor in enumerate(outputs, start=1):
            os.dup2(descriptor, place)
        if parent is not None and terminate_with_parent() and os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        become(command, mask, environment)
    except OSError as error:
        number = error.errno or errno.EIO
    except BaseException:
        number = errno.EINVAL  # a null character in an argument
    finally:
        os.write(write_end, str(number).encode())
        os._exit(NOT_FOUND)


def become(command: Sequence[str], mask: set[Any], environment: Mapping[str, str]) -> None:
    """Execute the command in this process, with signals as Python's starter had them; never returns.

    Raises:
        OSError: it cannot be executed.
    """
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else one that comes now is lost
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    set_command_score()
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        script = _script(command[0], environment) if error.errno == errno.ENOEXEC else None
        if script is None:
            raise
        os.execve("/bin/sh", ["sh", script, *command[1:]], environment)


def _script(program: str, environment: Mapping[str, str]) -> str | None:
    """File of a program without a `#!` line, if it is text: shells run it with sh."""
    folders = [""] if "/" in program else os.get_exec_path(dict(environment))
    for path in (os.path.join(folder, program) for folder in folders):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            with open(path, "rb") as file:
                return None if b"\0" in file.read(128) else os.path.join(".", path)
    return None


def end_like(status: int) -> None:
    """End this process as a child with this wait status did: by its signal, or with its exit code.

    A shell or Slurm then sees what it would have seen of the command itself.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        disable_core_dump()  # the run has left its own
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))
