"""The command's process: started, told of every signal, waited for, and its end repeated."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from memory.supervision.process_settings import disable_core_dump, set_command_score, terminate_with_parent

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell."""
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")


class CannotStart(Exception):
    """The command could not be executed. exit_code: as a shell has it."""

    def __init__(self, program: str, number: int) -> None:
        missing = number in (errno.ENOENT, errno.ENOTDIR)
        self.exit_code = NOT_FOUND if missing else NOT_EXECUTABLE
        why = "no such command" if missing else os.strerror(number).lower()
        super().__init__(f"{program}: {why}")


def start(
    command: Sequence[str],
    mask: set[Any],
    *,
    environment: Mapping[str, str] | None = None,
    outputs: tuple[int, int] | None = None,
    ends_with_us: bool = False,
) -> int:
    """Start it; returns its process id.

    Args:
        command: the program, looked for in PATH, and its arguments.
        mask: signals that are blocked in it: those that were in us, so that one which our starter held back
            waits until the command is ready for it.
        environment: of it; ours by default.
        outputs: descriptors that become its stdout and stderr.
        ends_with_us: whether SIGTERM comes to it when we are gone.

    Raises:
        CannotStart: there is no such program, or it cannot be executed.
        OSError: there is no pipe or no process to be had.
    """
    read_end, write_end = os.pipe()  # closed by exec: what comes through is why that failed
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
    with os.fdopen(read_end, "rb") as told:
        number = told.read()
    if number:
        os.waitpid(child, 0)
        raise CannotStart(command[0], int(number))
    return child


def _become(
    command: Sequence[str],
    mask: set[Any],
    environment: Mapping[str, str] | None,
    outputs: tuple[int, int] | None,
    parent: int | None,
    write_end: int,
) -> None:
    """In the forked child. Never returns."""
    number = 0
    try:
        for place, descriptor in enumerate(outputs or (), start=1):
            os.dup2(descriptor, place)
        if parent is not None and terminate_with_parent() and os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        become(command, mask, os.environ if environment is None else environment)
    except OSError as error:
        number = error.errno or errno.EIO
    except BaseException:
        number = errno.EINVAL  # a null character in an argument
    finally:
        os.write(write_end, str(number).encode())
        os._exit(NOT_FOUND)


def become(command: Sequence[str], mask: set[Any], environment: Mapping[str, str]) -> None:
    """Execute it in this process, with signals as Python's starter had them. Returns never.

    Raises:
        OSError: it cannot be executed.
    """
    for name in _IGNORED_BY_PYTHON:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
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
    """The file of a program that the kernel does not know, if it is text: shells hand that to sh."""
    folders = [""] if "/" in program else os.get_exec_path(dict(environment))
    for path in (os.path.join(folder, program) for folder in folders):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            with open(path, "rb") as file:
                return None if b"\0" in file.read(128) else os.path.join(".", path)
    return None


def end_like(status: int) -> None:
    """End this process as a child with that wait status did: with its exit code, or by its signal.

    So a shell, Slurm or whoever started us sees what it would have seen of the command itself.
    """
    _flush()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        disable_core_dump()
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
