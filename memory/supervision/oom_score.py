"""Who goes first when the kernel kills for memory: the run, not the supervisor that is to tell of it.

The kernel takes the process that holds most. Where shared memory or pipes fill the limit no process holds
them, and the supervisor's 12 MB may be the most: it would die, and the run go on unseen.

Source: proc(5), /proc/PID/oom_score_adj: thousandths of the limit that are added to what a process holds.
Anybody may raise it, only the privileged may lower it.
"""

from __future__ import annotations

from contextlib import suppress

_FILE = "/proc/self/oom_score_adj"
_LOWEST, _HIGHEST = -999, 1000
"""Below -999 nobody is left to be killed."""
_OWN_BYTES = 24 << 20
_MOST_RAISED = 100
_of_command: str | None = None


def stand_back(limit_bytes: int | None = None, file: str = _FILE) -> None:
    """In the supervisor, before there is a command. limit_bytes: the smallest that counts for both."""
    global _of_command
    with suppress(OSError, ValueError):
        with open(file) as now:
            before = int(now.read())
        try:
            _write(file, str(min(before, _LOWEST)))
            _of_command = str(before)
        except PermissionError:
            raised = _MOST_RAISED if not limit_bytes else -(-1000 * _OWN_BYTES // limit_bytes)
            _of_command = str(min(_HIGHEST, before + min(raised, _MOST_RAISED)))


def stand_in_front(file: str = _FILE) -> None:
    """In what becomes the command: as it was, or by so much in front as the supervisor holds."""
    if _of_command is not None:
        with suppress(OSError):
            _write(file, _of_command)


def _write(file: str, text: str) -> None:
    with open(file, "w") as score:
        score.write(text)
