"""Work in a process that kills itself at a named point: a fork of this one, which has all it needs loaded."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

from experiment_utils import atomic_files


def killed_at(point: str, work: Callable[[], object], count: int = 1) -> bool:
    """Whether the process came to the point so often, and died there; else it did all of its work."""
    seen = 0

    def on_point(name: str) -> None:
        nonlocal seen
        seen += name == point
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            atomic_files.on_point = on_point
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0
