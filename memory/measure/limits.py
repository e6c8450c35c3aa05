"""Every limit from a process's own cgroup up to the machine, and the limits of the process itself.

For a report, not for each snapshot: `memory.measure.cgroup` reads of this what decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.files.procfs import (
    list_folder,
    read_counters,
    read_file,
    read_long_file,
    read_number,
    to_number,
)
from memory.measure.cgroup import find_levels, read_membership

_UNLIMITED = 2**60
_MAX_CGROUPS = 1000


@dataclass(frozen=True, slots=True)
class LimitLevel:
    """One cgroup on the way up; amounts in bytes, None: no limit, or not told.

    high_bytes: above it the kernel slows its processes down (v2 memory.high; v1 has the weaker soft limit,
    which slows nobody down and is left out). swap_limit_bytes: swap that it may use; on v1 memory.memsw less
    the limit. own_kills: the kernel's kills in this cgroup itself. group_kill: memory.oom.group, with which
    one kill takes every process of the cgroup along.
    """

    path: str
    limit_bytes: int | None = None
    high_bytes: int | None = None
    swap_limit_bytes: int | None = None
    usage_bytes: int | None = None
    own_kills: int | None = None
    group_kill: bool = False


def read_limits(pid: int, root: str = "") -> tuple[LimitLevel, ...]:
    """From the process's own cgroup upwards, as far as can be seen from here; empty where there is none."""
    membership = read_membership(pid, root)
    if membership is None:
        return ()
    version, levels = find_levels(root, membership)
    return tuple((_v1 if version == 1 else _v2)(level.path, level.folder) for level in levels)


def processes_of(pid: int, path: str, root: str = "") -> tuple[int, ...]:
    """Pids in the cgroup `path`, one of those above `pid`, and in all below it; empty: not told."""
    membership = read_membership(pid, root)
    _, levels = find_levels(root, membership) if membership is not None else (0, ())
    waiting = [level.folder for level in levels if level.path == path]
    found: list[int] = []
    seen = 0
    while waiting and seen < _MAX_CGROUPS:
        folder, seen = waiting.pop(), seen + 1
        pids = (read_long_file(f"{folder}/cgroup.procs") or b"").split()
        found += [number for number in map(to_number, pids) if number]
        below = (name for name in list_folder(folder) if not name.startswith(("memory.", "cgroup.")))
        waiting += [f"{folder}/{name}" for name in below]
    return tuple(sorted(set(found)))


def read_rlimits(pid: int, root: str = "") -> dict[str, int | None]:
    """`as_bytes`, `data_bytes`, `memlock_bytes` and `stack_bytes` of /proc/PID/limits (soft limits; None:
    unlimited); left out what is not told.
    """
    names = {
        b"Max address space": "as_bytes",
        b"Max data size": "data_bytes",
        b"Max locked memory": "memlock_bytes",
        b"Max stack size": "stack_bytes",
    }
    found: dict[str, int | None] = {}
    for line in (read_file(f"{root}/proc/{pid}/limits") or b"").splitlines():
        key = names.get(line[:26].strip())
        words = line[26:].split()
        if key is not None and words:
            amount = to_number(words[0])
            if amount is not None or words[0] == b"unlimited":
                found[key] = amount
    return found


def _v1(path: str, folder: str) -> LimitLevel:
    limit = _limit(f"{folder}/memory.limit_in_bytes")
    with_swap = _limit(f"{folder}/memory.memsw.limit_in_bytes")
    return LimitLevel(
        path,
        limit,
        swap_limit_bytes=None if with_swap is None or limit is None else max(0, with_swap - limit),
        usage_bytes=read_number(f"{folder}/memory.usage_in_bytes"),
        own_kills=read_counters(f"{folder}/memory.oom_control").get("oom_kill"),
    )


def _v2(path: str, folder: str) -> LimitLevel:
    return LimitLevel(
        path,
        _limit(f"{folder}/memory.max"),
        _limit(f"{folder}/memory.high"),
        _limit(f"{folder}/memory.swap.max"),
        read_number(f"{folder}/memory.current"),
        read_counters(f"{folder}/memory.events.local").get("oom_kill"),
        read_file(f"{folder}/memory.oom.group") == b"1\n",
    )


def _limit(path: str) -> int | None:
    number = read_number(path)
    return None if number is None or number >= _UNLIMITED else number
