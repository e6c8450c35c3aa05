"""Each limit from a process's own cgroup up to the machine, and the limits of the process itself.

For a report: `memory.measure.cgroup` reads the limit that decides, for each snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.files.procfs import (
    folders_below,
    read_counters,
    read_file,
    read_long_file,
    read_number,
    to_number,
)
from memory.measure.cgroup import UNLIMITED_BYTES, Level, levels_of

MOST_CGROUPS = 512
"""Cgroups of one tree that are looked at."""
_RLIMITS = {
    "as_bytes": (b"Max address space", 0),
    "data_bytes": (b"Max data size", 0),
    "memlock_bytes": (b"Max locked memory", 0),
    "stack_bytes": (b"Max stack size", 0),
    "cpu_hard_s": (b"Max cpu time", 1),
}
"""Line of /proc/PID/limits, and the column after it: soft or hard."""


@dataclass(frozen=True, slots=True)
class LimitLevel:
    """One cgroup on the way up; None: no limit, or not reported."""

    path: str
    limit_bytes: int | None = None
    high_bytes: int | None = None
    """memory.high of v2, above which the kernel slows processes down."""
    swap_limit_bytes: int | None = None
    """Swap that it may use; on v1 memory.memsw less the limit."""
    usage_bytes: int | None = None
    own_kills: int | None = None
    """Processes of this cgroup itself that the kernel killed."""
    group_kill: bool = False
    """memory.oom.group: one kill takes each process of the cgroup along."""


def read_limits(pid: int, root: str = "") -> tuple[LimitLevel, ...]:
    """Limits from the process's own cgroup upwards, as far as visible; empty if there is none."""
    version, levels = levels_of(pid, root)
    return tuple((_v1 if version == 1 else _v2)(level) for level in levels)


def processes_of(pid: int, path: str, root: str = "") -> tuple[int, ...]:
    """Pids in a cgroup and in all below it; empty if it is not visible.

    Args:
        pid: a process in it.
        path: of the cgroup, as in /proc/PID/cgroup.
        root: folder that holds /proc and /sys. A process of another pid namespace has pid 0.
    """
    folders = [level.folder for level in levels_of(pid, root)[1] if level.path == path]
    found: set[int] = set()
    for folder in folders_below(folders[0], MOST_CGROUPS) if folders else ():
        words = (read_long_file(f"{folder}/cgroup.procs") or b"").split()
        found.update(int(word) for word in words if word.isdigit() and len(word) < 10)
    return tuple(sorted(found))


def read_rlimits(
    pid: int, root: str = "", names: tuple[str, ...] = tuple(_RLIMITS)[:-1]
) -> dict[str, int | None]:
    """Limits of a process (/proc/PID/limits), by name; None: unlimited. Empty if it cannot be read.

    Args:
        pid: the process; it can be a zombie.
        root: folder that holds /proc.
        names: `as_bytes`, `data_bytes`, `memlock_bytes`, `stack_bytes` (soft limits), `cpu_hard_s` (CPU
            seconds at which the kernel sends SIGKILL).
    """
    lines = (read_file(f"{root}/proc/{pid}/limits") or b"").splitlines()
    found: dict[str, int | None] = {}
    for name in names:
        title, column = _RLIMITS[name]
        words = next((line[len(title) :].split() for line in lines if line.startswith(title)), [])
        word = words[column] if column < len(words) else b""
        if word.isdigit() or word == b"unlimited":
            found[name] = to_number(word)
    return found


def _v1(level: Level) -> LimitLevel:
    limit = _limit(f"{level.folder}/memory.limit_in_bytes")
    with_swap = _limit(f"{level.folder}/memory.memsw.limit_in_bytes")
    return LimitLevel(
        level.path,
        limit,
        swap_limit_bytes=None if with_swap is None or limit is None else max(0, with_swap - limit),
        usage_bytes=read_number(f"{level.folder}/memory.usage_in_bytes"),
        own_kills=read_counters(f"{level.folder}/memory.oom_control").get("oom_kill"),
    )


def _v2(level: Level) -> LimitLevel:
    return LimitLevel(
        level.path,
        _limit(f"{level.folder}/memory.max"),
        _limit(f"{level.folder}/memory.high"),
        _limit(f"{level.folder}/memory.swap.max"),
        read_number(f"{level.folder}/memory.current"),
        read_counters(f"{level.folder}/memory.events.local").get("oom_kill"),
        read_file(f"{level.folder}/memory.oom.group") == b"1\n",
    )


def _limit(path: str) -> int | None:
    number = read_number(path)
    return None if number is None or number >= UNLIMITED_BYTES else number
