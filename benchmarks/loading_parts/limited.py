"""Commands under a limit of memory, in a cgroup of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memory.cgroup import find_levels

_ROOTS = {1: Path("/sys/fs/cgroup/memory"), 2: Path("/sys/fs/cgroup")}


class CannotLimit(Exception):
    """No cgroup can be made here: what to tell."""


@contextmanager
def limited(limit_bytes: int | None) -> Iterator[list[str]]:
    """What stands before a command to run it in a new cgroup; None: no limit, no cgroup.

    Raises:
        CannotLimit: no cgroup of memory here, or no right to make one.
    """
    if limit_bytes is None:
        yield []
        return
    version, levels = find_levels("", Path("/proc/self/cgroup").read_bytes())
    parent = Path(levels[0].folder) if levels else _ROOTS[version]
    job = parent / f"highwater_bench_{os.getpid()}_{time.time_ns()}"
    try:
        job.mkdir()
        if version == 1:
            (job / "memory.limit_in_bytes").write_text(str(limit_bytes))
        else:
            (parent / "cgroup.subtree_control").write_text("+memory")
            (job / "memory.max").write_text(str(limit_bytes))
    except OSError as error:
        with suppress(OSError):
            job.rmdir()
        raise CannotLimit(f"{parent}: {error.strerror}; it needs root and a cgroup of memory") from error
    try:
        yield ["sh", "-c", f'echo $$ > "{job}/cgroup.procs" && exec "$@"', "sh"]
    finally:
        for _ in range(50):
            with suppress(OSError):
                job.rmdir()
                break
            time.sleep(0.1)
