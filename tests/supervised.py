"""Starting supervisors, and looking at what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from memory.measure.cgroup import find_levels
from memory.supervision.options import command_line

DEADLINE_S = 120.0


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def supervise(
    folder: Path, command: list[str], *, prefix: tuple[str, ...] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """The command under a supervisor, until both have ended. prefix: what stands before the supervisor."""
    return subprocess.run(
        [*prefix, *command_line(command, folder, **options)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def start_supervised(
    folder: Path,
    command: list[str],
    *,
    prefix: tuple[str, ...] = (),
    session: bool = False,
    group: bool = False,
    **options: Any,
) -> subprocess.Popen[str]:
    """session, group: in one of its own."""
    return subprocess.Popen(
        [*prefix, *command_line(command, folder, **options)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=session, process_group=0 if group else None,
    )  # fmt: skip


def outcome_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "outcome.json").read_text())
    return found


def wait_for(what: Callable[[], Any], why: str = "nothing came") -> Any:
    """The first true value of `what()`."""
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(why)


def is_alive(pid: int) -> bool:
    """Runs, and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def pid_in(path: Path) -> int:
    """The process id that somebody wrote to the file."""
    return int(wait_for(lambda: path.exists() and path.read_text().strip(), f"{path} was not written"))


@contextmanager
def limited_cgroup(limit_bytes: int) -> Iterator[tuple[tuple[str, ...], Path, str]]:
    """A cgroup with a limit, and a task's below it that has none, as under Slurm.

    Yields what to put before a command so that it runs there, the job's folder, and its path.
    """
    version, levels = find_levels("", Path("/proc/self/cgroup").read_bytes())
    if not levels:
        pytest.skip("no memory cgroup to make another one in")
    job = Path(levels[0].folder) / f"highwater_test_{os.getpid()}_{time.time_ns()}"
    try:
        job.mkdir()
        for folder in (job.parent, job) if version == 2 else ():
            (folder / "cgroup.subtree_control").write_text("+memory")
        (job / ("memory.limit_in_bytes" if version == 1 else "memory.max")).write_text(str(limit_bytes))
        (job / "task_0").mkdir()
    except OSError as error:
        _remove(job)
        pytest.skip(f"cannot make a cgroup with a limit here: {error}")
    try:
        enter = f'echo $$ > "{job}/task_0/cgroup.procs" && exec "$@"'
        yield ("sh", "-c", enter, "sh"), job, f"{levels[0].path}/{job.name}"
    finally:
        _remove(job)


def _remove(job: Path) -> None:
    for folder in (job / "task_0", job):
        for _ in range(100):
            if not folder.exists():
                break
            with suppress(OSError):
                folder.rmdir()
            time.sleep(0.05)
