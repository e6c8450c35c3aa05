"""Linux settings of the supervisor and its command: who is signalled, and who the kernel kills first.

Sources: prctl(2); proc(5), /proc/PID/oom_score_adj, in thousandths of the memory limit. Any process may raise
its score, only a privileged one may lower it.
"""

from __future__ import annotations

import signal
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_SCORE_FILE = "/proc/self/oom_score_adj"
_LOWEST_SCORE, _HIGHEST_SCORE = -999, 1000
"""With -1000 a process is never killed."""
_OWN_BYTES = 24 << 20
_MOST_RAISED = 100
_score_of_command: str | None = None


def terminate_with_parent() -> bool:
    """Request SIGTERM when the parent process ends; kept by exec, not by fork. Returns whether it is set."""
    return _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> bool:
    """Become the parent of each descendant whose own parent has ended. Returns whether it is set."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def disable_core_dump() -> bool:
    """Write no core file when this process ends by a signal. Returns whether it is set."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def protect_supervisor(limit_bytes: int | None = None, file: str = _SCORE_FILE) -> None:
    """Let the kernel kill the command before this process. Call it before the command starts.

    Where shared memory or pipes fill the limit, no process holds them, and this process could be the
    largest.

    Args:
        limit_bytes: smallest memory limit of both processes.
        file: the score file of this process.
    """
    global _score_of_command
    with suppress(OSError, ValueError):
        with open(file) as now:
            before = int(now.read())
        try:
            _write(file, str(min(before, _LOWEST_SCORE)))
            _score_of_command = str(before)
        except PermissionError:
            raised = _MOST_RAISED if not limit_bytes else -(-1000 * _OWN_BYTES // limit_bytes)
            _score_of_command = str(min(_HIGHEST_SCORE, before + min(raised, _MOST_RAISED)))


def set_command_score(file: str = _SCORE_FILE) -> None:
    """Give the command its score; called in the process that becomes the command."""
    if _score_of_command is not None:
        with suppress(OSError):
            _write(file, _score_of_command)


def _write(file: str, text: str) -> None:
    with open(file, "w") as score:
        score.write(text)


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes

        return ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False
