"""Work in a fork of this process, which has all it needs loaded: a new one takes seconds to import torch."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

from experiment_utils import atomic_files


def exit_code_of(work: Callable[[], object]) -> int:
    """Exit code of a fork that does the work: 1 if it raised, which it prints."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(point: str, work: Callable[[], object], count: int = 1) -> bool:
    """Whether the process came to the point so often, and died there; else it did all of its work."""
    seen = 0

    def on_point(name: str) -> None:
        nonlocal seen
        seen += name == point
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)

    def until_killed() -> None:
        atomic_files.on_point = on_point
        work()

    status = exit_code_of(until_killed)
    assert status in (0, -signal.SIGKILL)
    return status != 0
