"""A process whose main thread has ended while other threads work on.

It looks like one that has ended itself: a zombie without memory, maps or descriptors, which cgroup v1 has
taken out of its cgroup. What it holds is told by the files of a thread that lives (proc(5), /proc/PID/task).
"""

from __future__ import annotations

from memory.files.procfs import list_folder, read_file

_ENDED = (b"Z", b"X")


def living_task(pid: int, proc: str = "/proc") -> str | None:
    """The folder of a thread of it that lives; None where its main thread does, or none does."""
    if _state(f"{proc}/{pid}/stat") not in _ENDED:
        return None
    tasks = f"{proc}/{pid}/task"
    living = (name for name in list_folder(tasks) if _state(f"{tasks}/{name}/stat") not in (*_ENDED, b""))
    return next((f"{tasks}/{name}" for name in living), None)


def _state(path: str) -> bytes:
    """The letter behind the name, which may hold anything."""
    return (read_file(path) or b"").rpartition(b") ")[2][:1]
