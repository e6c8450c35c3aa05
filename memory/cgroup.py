"""The cgroup that decides when the kernel kills for memory: its limit, and U, what counts against it.

U, the unreclaimable memory, is anon + shmem + kernel (v2: kernel less slab_reclaimable; v1: rss +
shmem + kmem). It is measured where the smallest limit stands, from the process's own cgroup up to
the root: Slurm limits the job, while the task's own cgroup says "unlimited".

Sources: cgroups(7); the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from memory.kernel_files import exists, read_counters, read_file, read_long_file, read_number

_UNLIMITED = 2**60
"""v1 writes 'no limit' as the largest whole number of pages, 2^63 less a page."""
_LIMIT_FILE = {1: "memory.limit_in_bytes", 2: "memory.max"}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One cgroup and all below it, in bytes; None where the kernel does not tell.

    path: as /proc/PID/cgroup writes it. limit_bytes: None where only the host's memory is the limit.
    limit_at: the cgroup whose limit that is; a limit of a container may stand above what it sees.
    usage_bytes and peak_usage_bytes include page cache: at the limit they say nothing by themselves.
    file_bytes: page cache, mapped or not, shmem left out. events: counts of `oom_kill` and, on v2, of
    the other lines of memory.events.
    """

    version: int
    path: str
    limit_bytes: int | None = None
    limit_at: str | None = None
    usage_bytes: int | None = None
    peak_usage_bytes: int | None = None
    anon_bytes: int | None = None
    shmem_bytes: int | None = None
    kernel_bytes: int | None = None
    file_bytes: int | None = None
    events: dict[str, int] | None = None

    @property
    def unreclaimable_bytes(self) -> int | None:
        """U: what the kernel cannot give back, whatever the pressure."""
        if self.anon_bytes is None:
            return None
        return self.anon_bytes + (self.shmem_bytes or 0) + (self.kernel_bytes or 0)


@dataclass(frozen=True, slots=True)
class Level:
    """A cgroup on the way up: its path as the kernel writes it, and the folder it is read from."""

    path: str
    folder: str


def read_cgroup(pid: int, root: str = "", host_bytes: int | None = None) -> Cgroup | None:
    """Measure the cgroup that limits `pid`, or None where no cgroup counts its memory.

    Args:
        pid: the process.
        root: what stands before /proc and /sys; tests hand in trees of recorded files.
        host_bytes: the machine's memory; a limit that is not below it does not limit.
    """
    membership = read_file(f"{root}/proc/{pid}/cgroup")
    if membership is None:
        return None
    version, levels = find_levels(root, membership)
    if not levels:
        return None
    limits = [read_number(f"{level.folder}/{_LIMIT_FILE[version]}") for level in levels]
    wall = _UNLIMITED if host_bytes is None else min(host_bytes, _UNLIMITED)
    # the highest of equal limits: more processes count against it
    standing = [(limit, -height) for height, limit in enumerate(limits) if limit is not None and limit < wall]
    limit, height = min(standing, default=(None, 0))
    if version == 1:
        return _read_v1(levels, -height, limit, wall)
    return _read_v2(levels[-height], limit)


def _read_v1(levels: tuple[Level, ...], height: int, limit: int | None, wall: int) -> Cgroup:
    level, stat = levels[height], read_counters(levels[height].folder + "/memory.stat")
    limit_at = None if limit is None else level.path
    inherited = stat.get("hierarchical_memory_limit", _UNLIMITED)
    if inherited < (wall if limit is None else limit):
        # a cgroup that cannot be seen from here has the smaller limit: the highest visible is nearest to it
        height, limit = len(levels) - 1, inherited
        level, stat = levels[height], read_counters(levels[height].folder + "/memory.stat")
        limit_at = f"above {level.path}"
    anon, shmem, cache = (stat.get(f"total_{key}", stat.get(key)) for key in ("rss", "shmem", "cache"))
    kills = [
        read_counters(f"{below.folder}/memory.oom_control").get("oom_kill") for below in levels[: height + 1]
    ]
    known = [count for count in kills if count is not None]
    return Cgroup(
        version=1,
        path=level.path,
        limit_bytes=limit,
        limit_at=limit_at,
        usage_bytes=read_number(f"{level.folder}/memory.usage_in_bytes"),
        peak_usage_bytes=read_number(f"{level.folder}/memory.max_usage_in_bytes"),
        anon_bytes=anon,
        shmem_bytes=shmem,
        kernel_bytes=read_number(f"{level.folder}/memory.kmem.usage_in_bytes"),
        file_bytes=None if cache is None else max(0, cache - (shmem or 0)),
        # v1 counts a kill in the victim's own cgroup alone, not in those above it
        events={"oom_kill": sum(known)} if known else None,
    )


def _read_v2(level: Level, limit: int | None) -> Cgroup:
    stat = read_counters(f"{level.folder}/memory.stat")
    shmem, cache = stat.get("shmem"), stat.get("file")
    return Cgroup(
        version=2,
        path=level.path,
        limit_bytes=limit,
        limit_at=None if limit is None else level.path,
        usage_bytes=read_number(f"{level.folder}/memory.current"),
        peak_usage_bytes=read_number(f"{level.folder}/memory.peak"),
        anon_bytes=stat.get("anon"),
        shmem_bytes=shmem,
        kernel_bytes=_kernel_v2(stat),
        file_bytes=None if cache is None else max(0, cache - (shmem or 0)),
        events=read_counters(f"{level.folder}/memory.events") or None,
    )


def _kernel_v2(stat: dict[str, int]) -> int | None:
    """Kernel memory that cannot be given back; before Linux 5.18 it is summed from its parts."""
    if "kernel" in stat:
        return max(0, stat["kernel"] - stat.get("slab_reclaimable", 0))
    parts = [
        stat[key] for key in ("kernel_stack", "pagetables", "percpu", "slab_unreclaimable") if key in stat
    ]
    return sum(parts) if parts else None


@lru_cache(maxsize=8)
def find_levels(root: str, membership: bytes) -> tuple[int, tuple[Level, ...]]:
    """Version, and the cgroups from the process's own up to the highest that can be seen.

    The machine's root cgroup is left out: it has no limit, and counts everybody's memory.

    Args:
        root: what stands before /proc and /sys.
        membership: content of /proc/PID/cgroup; a hybrid machine lists v1 and v2.
    """
    paths = {
        controllers: path
        for _, controllers, path in (
            line.split(":", 2) for line in os.fsdecode(membership).splitlines() if line.count(":") >= 2
        )
    }
    of_memory = [path for controllers, path in paths.items() if "memory" in controllers.split(",")]
    version = 1 if of_memory else 2
    path = of_memory[0] if of_memory else paths.get("", "")
    for mounted_root, mount_point in sorted(_mounts(root, version), key=lambda mount: len(mount[0])):
        levels = tuple(_levels(path, mounted_root, root + mount_point, version))
        if levels:
            return version, levels
    return version, ()


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
        return  # outside this cgroup namespace: not to be seen from here
    top = mounted_root.rstrip("/")
    current = path.rstrip("/")
    while current == top or current.startswith(top + "/"):
        folder = mount_point + current[len(top) :]
        # release_agent stands in the root of a v1 hierarchy only; on v2 the root has no memory.max
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
