"""Anonymous memory of other processes in the cgroup whose limit counts, such as other tasks of the job."""

from __future__ import annotations

from memory.files.procfs import exists
from memory.measure.cgroup import Cgroup
from memory.measure.limits import processes_of
from memory.measure.process import parent_of, read_process
from memory.supervision.sampling_interval import HURRIES_FROM

_MOST_PROCESSES = 512
_EVERY_S = 8.0
_AFTER_KILL_S = 3.0
"""A process that the kernel killed may still be ending at the first sample after it."""


class NeighbourReader:
    """Reads them every 8 s, and with each sample if the limit is near or the kernel has just killed."""

    def __init__(self) -> None:
        self._job: tuple[str, int | None] | None = None
        self._read_until_s = self._due_s = float("-inf")
        self._bytes: int | None = None

    def anon_bytes(self, pid: int, job: Cgroup, ours: set[int], root: str, now_s: float) -> int | None:
        """Bytes as `neighbours_anon_bytes` returns them, at most 8 s old."""
        seen = job.path, (job.events or {}).get("oom_kill")
        if seen != self._job:
            self._job, self._read_until_s = seen, now_s + _AFTER_KILL_S
        is_near = (job.unreclaimable_bytes or 0) > HURRIES_FROM * (job.limit_bytes or float("inf"))
        if is_near or now_s <= self._read_until_s or now_s >= self._due_s:
            self._bytes, self._due_s = neighbours_anon_bytes(pid, job.path, ours, root), now_s + _EVERY_S
        return self._bytes


def neighbours_anon_bytes(pid: int, path: str, ours: set[int], root: str = "") -> int | None:
    """Anon bytes of the processes in a cgroup, and below it, that are neither `ours` nor descend from those.

    Args:
        pid: a process in it.
        path: of the cgroup, as in /proc/PID/cgroup.
        ours: pids of the run and its supervisor.
        root: folder that holds /proc and /sys.

    Returns:
        None if a process is not visible or is just ending, or if there are more than 512.
    """
    proc, total = f"{root}/proc", 0
    found = set(processes_of(pid, path, root))
    others = found - ours
    if not found or 0 in found or len(others) > _MOST_PROCESSES:
        return None
    parents = {other: parent_of(other, proc) for other in others}
    for other in others:
        above, passed = parents[other], {other}
        while above in parents and above not in passed:
            passed.add(above)
            above = parents[above]
        if above in ours:
            continue  # forked since our processes were listed
        process = read_process(other, proc)
        if process is None and exists(f"{proc}/{other}"):
            continue  # a zombie
        if process is None or process.anon_bytes is None:
            return None  # hidden, or ending: its memory is being given back
        total += process.anon_bytes
    return total
