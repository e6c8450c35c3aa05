"""The memory cgroup that limits a process: its limit, and U, the memory that counts against it.

U, the unreclaimable memory, is anon + shmem + kernel (v2: kernel less slab_reclaimable; v1: rss + shmem +
kmem) and page cache that is locked (mlock, a ramfs), of which most jobs have none. It is measured at the
cgroup with the smallest limit, from the process's own cgroup up to the root: Slurm limits the job, and the
task's own cgroup below it has no limit.

Sources: cgroups(7); the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from memory.files.procfs import exists, read_counters, read_file, read_long_file, read_number
from memory.measure.pressure import read_pressure

UNLIMITED_BYTES = 2**60
"""v1 writes 'no limit' as the largest whole number of pages, 2^63 less a page."""
_UNCOUNTED_BYTES = 8 << 20
"""Each CPU holds back up to 64 pages, of usage and of each counter."""
_LIMIT_FILE = {1: "memory.limit_in_bytes", 2: "memory.max"}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Memory of one cgroup and all below it; None where the kernel does not report it."""

    version: int
    path: str
    """Path as in /proc/PID/cgroup."""
    limit_bytes: int | None = None
    """None if only the host's memory is the limit."""
    limit_at: str | None = None
    """Path of the cgroup with that limit; `above PATH` if a container cannot see it."""
    usage_bytes: int | None = None
    """Includes page cache: at the limit it says nothing alone. So does the peak."""
    peak_usage_bytes: int | None = None
    anon_bytes: int | None = None
    shmem_bytes: int | None = None
    kernel_bytes: int | None = None
    file_bytes: int | None = None
    """Page cache, mapped or not, without shmem and without locked_bytes."""
    events: dict[str, int] | None = None
    """Counts since the cgroup was made: lines of memory.events; on v1 `oom_kill` and `failcnt`."""
    high_bytes: int | None = None
    """Smallest memory.high: above it the kernel slows processes down instead of killing them."""
    high_at: str | None = None
    swap_bytes: int | None = None
    page_tables_bytes: int | None = None
    """Part of kernel_bytes."""
    refaults: int | None = None
    """File pages that were reclaimed and read again."""
    anon_refaults: int | None = None
    """Pages read back from swap."""
    major_faults: int | None = None
    """Faults that waited for the disk."""
    stalled_us: int | None = None
    """Time in which all tasks waited for memory (PSI, the kernel's accounting/psi)."""
    some_stalled_us: int | None = None
    """Time in which at least one task waited."""
    stalled_percent: float | None = None
    """The same as a share of the last 10 s."""
    some_stalled_percent: float | None = None
    locked_bytes: int | None = None
    """Page cache that is locked in memory."""

    @property
    def unreclaimable_bytes(self) -> int | None:
        """U: memory that the kernel cannot reclaim."""
        if self.anon_bytes is None:
            return None
        return self.anon_bytes + sum(
            amount or 0 for amount in (self.shmem_bytes, self.kernel_bytes, self.locked_bytes)
        )


NO_CGROUP = Cgroup(0, "")
"""Result for a process whose memory no visible cgroup counts."""


@dataclass(frozen=True, slots=True)
class Level:
    """A cgroup on the way up: its path as the kernel writes it, and the folder it is read from."""

    path: str
    folder: str


def read_cgroup(pid: int, root: str = "", host_bytes: int | None = None) -> Cgroup | None:
    """Measure the cgroup that limits a process; None if no visible cgroup counts its memory.

    Args:
        pid: the process.
        root: folder that holds /proc and /sys.
        host_bytes: memory of the machine; a limit that is not below it is no limit.
    """
    version, levels = levels_of(pid, root)
    if not levels:
        return None
    wall = min(host_bytes or UNLIMITED_BYTES, UNLIMITED_BYTES)
    return (_read_v1 if version == 1 else _read_v2)(levels, wall)


def levels_of(pid: int, root: str = "") -> tuple[int, tuple[Level, ...]]:
    """Cgroup version, and the cgroups of a process from its own upwards; see `find_levels`."""
    return find_levels(root, read_membership(pid, root) or b"")


def read_membership(pid: int, root: str = "") -> bytes | None:
    """Content of /proc/PID/cgroup; None if it cannot be read."""
    return read_file(f"{root}/proc/{pid}/cgroup")


def _read_v1(levels: tuple[Level, ...], wall: int) -> Cgroup:
    limit, height = _smallest(levels, "memory.limit_in_bytes", wall)
    limit_at = None if limit is None else levels[height].path
    stat = read_counters(f"{levels[height].folder}/memory.stat")
    inherited = stat.get("hierarchical_memory_limit", wall)
    if inherited < (wall if limit is None else limit):
        # a cgroup that is not visible has the smaller limit: the highest visible one is nearest to it
        height, limit, limit_at = len(levels) - 1, inherited, f"above {levels[-1].path}"
        stat = read_counters(f"{levels[height].folder}/memory.stat")
    folder = levels[height].folder
    usage = read_number(f"{folder}/memory.usage_in_bytes")
    kernel = read_number(f"{folder}/memory.kmem.usage_in_bytes")
    stat = _settled(stat, ("total_rss", "total_cache"), (usage or 0) - (kernel or 0), levels[: height + 1])
    stat |= {name.removeprefix("total_"): count for name, count in stat.items() if name[:6] == "total_"}
    peak = read_number(f"{folder}/memory.max_usage_in_bytes")
    hits = None if limit is None else limit_hits(folder, peak, limit)
    # v1 counts a kill in the victim's own cgroup alone, not in those above it
    kills = [read_counters(f"{below.folder}/memory.oom_control") for below in levels[: height + 1]]
    counted = [found["oom_kill"] for found in kills if "oom_kill" in found]
    events = {"oom_kill": sum(counted)} if counted else {}
    if hits is not None:
        events["failcnt"] = hits
    file, locked = _file_and_locked(stat, stat.get("cache"))
    return Cgroup(
        version=1,
        path=levels[height].path,
        limit_bytes=limit,
        limit_at=limit_at,
        usage_bytes=usage,
        peak_usage_bytes=peak,
        anon_bytes=stat.get("rss"),
        shmem_bytes=stat.get("shmem"),
        kernel_bytes=kernel,
        file_bytes=file,
        events=events or None,
        swap_bytes=stat.get("swap"),
        refaults=stat.get("workingset_refault_file", stat.get("workingset_refault")),
        anon_refaults=stat.get("workingset_refault_anon"),
        major_faults=stat.get("pgmajfault"),
        locked_bytes=locked,
    )


def _read_v2(levels: tuple[Level, ...], wall: int) -> Cgroup:
    limit, height = _smallest(levels, "memory.max", wall)
    high, high_height = _smallest(levels, "memory.high", wall)
    path, folder = levels[height].path, levels[height].folder
    usage = read_number(f"{folder}/memory.current")
    stat = read_counters(f"{folder}/memory.stat")
    if "kernel" in stat:  # from Linux 5.18 on
        stat = _settled(stat, ("anon", "file", "kernel"), usage or 0, levels[: height + 1])
    file, locked = _file_and_locked(stat, stat.get("file"))
    pressure = read_pressure(f"{folder}/memory.pressure")
    return Cgroup(
        version=2,
        path=path,
        limit_bytes=limit,
        limit_at=None if limit is None else path,
        usage_bytes=usage,
        peak_usage_bytes=read_number(f"{folder}/memory.peak"),
        anon_bytes=stat.get("anon"),
        shmem_bytes=stat.get("shmem"),
        kernel_bytes=_kernel_v2(stat),
        file_bytes=file,
        events=read_counters(f"{folder}/memory.events") or None,
        high_bytes=high,
        high_at=None if high is None else levels[high_height].path,
        swap_bytes=read_number(f"{folder}/memory.swap.current"),
        page_tables_bytes=stat.get("pagetables"),
        # before Linux 5.9 one count of refaults, then one of files and one of anon
        refaults=stat.get("workingset_refault_file", stat.get("workingset_refault")),
        anon_refaults=stat.get("workingset_refault_anon"),
        major_faults=stat.get("pgmajfault"),
        stalled_us=pressure.full_us,
        some_stalled_us=pressure.some_us,
        stalled_percent=pressure.full_percent,
        some_stalled_percent=pressure.some_percent,
        locked_bytes=locked,
    )


def limit_hits(folder: str, peak_bytes: int | None, limit_bytes: int | None) -> int | None:
    """Count of allocations that met the limit of a v1 cgroup, of memory and of memory with swap.

    If swap is limited as memory is (Slurm's ConstrainSwapSpace), the kernel charges both together first
    (mm/memcontrol.c, try_charge_memcg): failcnt stays 0, and memory.memsw.failcnt too with Linux 6.18.

    Args:
        folder: of the cgroup.
        peak_bytes: highest usage since it was made.
        limit_bytes: its limit.

    Returns:
        None if the kernel did not count: no such file, or only zeros although usage was at the limit.
    """
    counts = [read_number(f"{folder}/memory.{name}") for name in ("failcnt", "memsw.failcnt")]
    known = [count for count in counts if count is not None]
    is_uncounted = peak_bytes is not None and limit_bytes is not None and peak_bytes >= limit_bytes
    return sum(known) if any(known) or (known and not is_uncounted) else None


def _settled(
    stat: dict[str, int], parts: tuple[str, ...], usage: int, levels: tuple[Level, ...]
) -> dict[str, int]:
    """memory.stat of the last level, read once more if its `parts` sum to much less than the usage.

    A cgroup that waits for its own counts to be gathered keeps those above from gathering theirs, for up to
    two seconds (mm/memcontrol.c, memcg_rstat_updated; seen on Linux 6.18): to read the lower one ends that.
    """
    counted = sum(stat.get(part, 0) for part in parts)
    if len(levels) == 1 or usage - counted < max(_UNCOUNTED_BYTES, usage >> 6):
        return stat
    for level in levels:
        stat = read_counters(f"{level.folder}/memory.stat")
    return stat


def _smallest(levels: tuple[Level, ...], file: str, wall: int) -> tuple[int | None, int]:
    """The smallest number in this file of each level, and its index; (None, 0) if none is below `wall`.

    Among equal ones the highest level counts: more processes share it.
    """
    limits = [read_number(f"{level.folder}/{file}") for level in levels]
    below = [(limit, -height) for height, limit in enumerate(limits) if limit is not None and limit < wall]
    limit, height = min(below, default=(None, 0))
    return limit, -height


def read_limit(folder: str, version: int) -> int | None:
    """Memory limit of one cgroup in bytes; None: it has none."""
    limit = read_number(f"{folder}/{_LIMIT_FILE[version]}")
    return None if limit is None or limit >= UNLIMITED_BYTES else limit


def _kernel_v2(stat: dict[str, int]) -> int | None:
    """Kernel memory that cannot be reclaimed; before Linux 5.18 it is summed from its parts."""
    if "kernel" in stat:
        return max(0, stat["kernel"] - stat.get("slab_reclaimable", 0))
    parts = ("kernel_stack", "pagetables", "percpu", "slab_unreclaimable")
    known = [stat[part] for part in parts if part in stat]
    return sum(known) if known else None


def _file_and_locked(stat: dict[str, int], cache: int | None) -> tuple[int | None, int | None]:
    """Page cache that can be reclaimed, and page cache that is locked.

    Locked pages are on neither list of file pages but on `unevictable`, as are locked anon and shmem.
    """
    if cache is None:
        return None, None
    file = cache - stat.get("shmem", 0)
    if not stat.keys() >= {"unevictable", "active_file", "inactive_file"}:
        return max(0, file), None
    listed = stat.get("swapcached", 0) + stat["active_file"] + stat["inactive_file"]
    locked = max(0, min(stat["unevictable"], file - listed))
    return max(0, file - locked), locked


def unseen_cgroup(pid: int, root: str = "") -> str | None:
    """Path of the memory cgroup of a process, if no file of it is visible here; else None.

    It and those above it can have a limit.
    """
    membership = read_membership(pid, root)
    if not membership or find_levels(root, membership)[1]:
        return None
    version, path = _own_path(membership)
    seen = any(
        exists(root + mount_point + path[len(mounted_root.rstrip("/")) :])
        for mounted_root, mount_point in _mounts(root, version)
        if ".." not in path.split("/") and f"{path}/".startswith(mounted_root.rstrip("/") + "/")
    )
    return None if seen or not path else path


@lru_cache(maxsize=8)
def find_levels(root: str, membership: bytes) -> tuple[int, tuple[Level, ...]]:
    """Cgroup version, and the cgroups from a process's own up to the highest that is visible.

    The root cgroup of the machine is left out: it has no limit, and counts all memory.

    Args:
        root: folder that holds /proc and /sys.
        membership: content of /proc/PID/cgroup; a hybrid machine lists v1 and v2.
    """
    version, path = _own_path(membership)
    for mounted_root, mount_point in sorted(_mounts(root, version), key=lambda mount: len(mount[0])):
        levels = tuple(_levels(path, mounted_root, root + mount_point, version))
        if levels:
            return version, levels
    return version, ()


def _own_path(membership: bytes) -> tuple[int, str]:
    """Version, and the path of the cgroup that counts the memory; empty if there is none."""
    paths = {
        controllers: path
        for _, controllers, path in (
            line.split(":", 2) for line in os.fsdecode(membership).splitlines() if line.count(":") >= 2
        )
    }
    of_memory = [path for controllers, path in paths.items() if "memory" in controllers.split(",")]
    return (1, of_memory[0]) if of_memory else (2, paths.get("", ""))


def _mounts(root: str, version: int) -> Iterator[tuple[str, str]]:
    """(root of the mount within its hierarchy, mount point) of each mount that counts memory."""
    mounts = read_long_file(f"{root}/proc/self/mountinfo") or b""
    for line in os.fsdecode(mounts).splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        if (version == 1 and kind[0] == "cgroup" and "memory" in kind[2].split(",")) or (
            version == 2 and kind[0] == "cgroup2"
        ):
            yield _unescaped(fields[3]), _unescaped(fields[4])


def _levels(path: str, mounted_root: str, mount_point: str, version: int) -> Iterator[Level]:
    """From `path` upwards while the mount shows it; a container's mount begins at its own cgroup."""
    if not path.startswith("/") or ".." in (path + mounted_root).split("/"):
        return  # outside this cgroup namespace: not visible
    top = mounted_root.rstrip("/")
    current = path.rstrip("/")
    while current == top or current.startswith(top + "/"):
        folder = mount_point + current[len(top) :]
        # release_agent is in the root of a v1 hierarchy only; on v2 the root has no memory.max
        if exists(f"{folder}/{_LIMIT_FILE[version]}") and not exists(f"{folder}/release_agent"):
            yield Level(current or "/", folder)
        if not current:
            return
        current = current.rpartition("/")[0]


def _unescaped(field: str) -> str:
    """proc(5) writes space, tab, newline and backslash of a path as three octal digits."""
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(octal, character)
    return field
