"""The cgroup that decides when the kernel kills for memory: its limit, and U, what counts against it.

U, the unreclaimable memory, is anon + shmem + kernel (v2: kernel less slab_reclaimable; v1: rss +
shmem + kmem), and page cache that is locked (mlock, a ramfs), of which there is none as a rule.
It is measured where the smallest limit stands, from the process's own cgroup up to
the root: Slurm limits the job, while the task's own cgroup says "unlimited".

Sources: cgroups(7); the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from memory.files.cached_procfs import read_kept
from memory.files.procfs import (
    Counters,
    Read,
    exists,
    read_counters,
    read_file,
    read_long_file,
    read_number,
)
from memory.measure.pressure import read_pressure

_UNLIMITED = 2**60
"""v1 writes 'no limit' as the largest whole number of pages, 2^63 less a page."""
_UNCOUNTED_BYTES = 8 << 20
"""Each CPU keeps up to 64 pages back, of what is in use and of each count."""
_PLACES_LAST_S = 5.0
_MAX_PLACES = 100
_NOWHERE = -1
_heights: dict[str, tuple[float, int]] = {}
_highs: dict[str, tuple[float, int | None, str | None]] = {}
_LIMIT_FILE = {1: "memory.limit_in_bytes", 2: "memory.max"}


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One cgroup and all below it, in bytes; None where the kernel does not tell.

    path: as /proc/PID/cgroup writes it. limit_bytes: None where only the host's memory is the limit.
    limit_at: the cgroup whose limit that is; a limit of a container may stand above what it sees.
    usage_bytes and peak_usage_bytes include page cache: at the limit they say nothing by themselves.
    file_bytes: page cache, mapped or not, without shmem and without locked_bytes, which is as much of it as
    is locked in memory; None: not told. high_bytes, high_at: the smallest memory.high,
    above which the kernel slows its processes down instead of killing them. page_tables_bytes: a part of
    kernel_bytes. events: counts since the cgroup was made, `oom_kill` and the other lines of memory.events;
    of v1 `oom_kill` and `failcnt`. refaults: file pages that were given back and read again; anon_refaults:
    pages read back from swap. major_faults: faults that waited for the disk. stalled_us, some_stalled_us:
    how long all, or some, of its tasks waited for memory; stalled_percent, some_stalled_percent: of the last
    10 s (PSI, the kernel's accounting/psi).
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
    high_bytes: int | None = None
    high_at: str | None = None
    swap_bytes: int | None = None
    page_tables_bytes: int | None = None
    refaults: int | None = None
    anon_refaults: int | None = None
    major_faults: int | None = None
    stalled_us: int | None = None
    some_stalled_us: int | None = None
    stalled_percent: float | None = None
    some_stalled_percent: float | None = None
    locked_bytes: int | None = None

    @property
    def unreclaimable_bytes(self) -> int | None:
        """U: what the kernel cannot give back, whatever the pressure."""
        if self.anon_bytes is None:
            return None
        return self.anon_bytes + sum(
            amount or 0 for amount in (self.shmem_bytes, self.kernel_bytes, self.locked_bytes)
        )


@dataclass(frozen=True, slots=True)
class Level:
    """A cgroup on the way up: its path as the kernel writes it, and the folder it is read from."""

    path: str
    folder: str


def read_cgroup(
    pid: int, root: str = "", host_bytes: int | None = None, known: Cgroup | None = None
) -> Cgroup | None:
    """Measure the cgroup that limits `pid`, or None where no cgroup counts its memory.

    Args:
        pid: the process.
        root: what stands before /proc and /sys; tests hand in trees of recorded files.
        host_bytes: the machine's memory; a limit that is not below it does not limit.
        known: what was read some seconds ago: of the same cgroup and limit, the peak of its usage and how
            often v1 met the limit are not read anew, which are a third of the files.
    """
    membership = read_membership(pid, root, read_kept)
    if membership is None:
        return None
    version, levels = find_levels(root, membership)
    if not levels:
        return None
    wall = _UNLIMITED if host_bytes is None else min(host_bytes, _UNLIMITED)
    limit, height = _smallest_limit(levels, f"/{_LIMIT_FILE[version]}", wall)
    return (_read_v1 if version == 1 else _read_v2)(levels, height, limit, wall, known)


def read_membership(pid: int, root: str = "", read: Read = read_file) -> bytes | None:
    """Content of /proc/PID/cgroup."""
    return read(f"{root}/proc/{pid}/cgroup")


def _read_v1(
    levels: tuple[Level, ...], height: int, limit: int | None, wall: int, known: Cgroup | None
) -> Cgroup:
    level, stat = levels[height], Counters(levels[height].folder + "/memory.stat", read_kept)
    limit_at = None if limit is None else level.path
    inherited = stat.get(b"hierarchical_memory_limit")
    if inherited is not None and inherited < (wall if limit is None else limit):
        # a cgroup that cannot be seen from here has the smaller limit: the highest visible is nearest to it
        height, limit = len(levels) - 1, inherited
        level, stat = levels[height], Counters(levels[height].folder + "/memory.stat", read_kept)
        limit_at = f"above {level.path}"
    usage = read_number(f"{level.folder}/memory.usage_in_bytes", read_kept)
    kernel = read_number(f"{level.folder}/memory.kmem.usage_in_bytes", read_kept)
    stat = _caught_up(stat, (b"total_rss", b"total_cache"), (usage or 0) - (kernel or 0), levels, height)
    anon, shmem = stat.get(b"total_rss", b"rss"), stat.get(b"total_shmem", b"shmem")
    cache = stat.get(b"total_cache", b"cache")
    locked = _locked(stat, cache, shmem)
    kills = [
        Counters(f"{below.folder}/memory.oom_control", read_kept).get(b"oom_kill")
        for below in levels[: height + 1]
    ]
    counted = [count for count in kills if count is not None]
    # v1 counts a kill in the victim's own cgroup alone, not in those above it
    events = {"oom_kill": sum(counted)} if counted else {}
    if known is not None and _is_the_same(known, level.path, limit):
        peak, hits = known.peak_usage_bytes, (known.events or {}).get("failcnt")
    else:
        peak = read_number(f"{level.folder}/memory.max_usage_in_bytes", read_kept)
        hits = limit_hits(level.folder, peak, limit, read_kept)
    if hits is not None:
        events["failcnt"] = hits
    return Cgroup(
        version=1,
        path=level.path,
        limit_bytes=limit,
        limit_at=limit_at,
        usage_bytes=usage,
        peak_usage_bytes=peak,
        anon_bytes=anon,
        shmem_bytes=shmem,
        kernel_bytes=kernel,
        file_bytes=None if cache is None else max(0, cache - (shmem or 0) - (locked or 0)),
        events=events or None,
        swap_bytes=stat.get(b"total_swap", b"swap"),
        refaults=stat.get(b"total_workingset_refault_file", b"total_workingset_refault"),
        anon_refaults=stat.get(b"total_workingset_refault_anon"),
        major_faults=stat.get(b"total_pgmajfault", b"pgmajfault"),
        locked_bytes=locked,
    )


def _read_v2(
    levels: tuple[Level, ...], height: int, limit: int | None, wall: int, known: Cgroup | None
) -> Cgroup:
    level = levels[height]
    stat = Counters(f"{level.folder}/memory.stat", read_kept)
    usage = read_number(f"{level.folder}/memory.current", read_kept)
    if stat.get(b"kernel") is not None:
        stat = _caught_up(stat, (b"anon", b"file", b"kernel"), usage or 0, levels, height)
    shmem, cache = stat.get(b"shmem"), stat.get(b"file")
    locked = _locked(stat, cache, shmem)
    high, high_at = _smallest_high(levels)
    if high is not None and high >= wall:
        high, high_at = None, None
    pressure = read_pressure(f"{level.folder}/memory.pressure")
    return Cgroup(
        version=2,
        path=level.path,
        limit_bytes=limit,
        limit_at=None if limit is None else level.path,
        usage_bytes=usage,
        peak_usage_bytes=known.peak_usage_bytes
        if known is not None and _is_the_same(known, level.path, limit)
        else read_number(f"{level.folder}/memory.peak", read_kept),
        anon_bytes=stat.get(b"anon"),
        shmem_bytes=shmem,
        kernel_bytes=_kernel_v2(stat),
        file_bytes=None if cache is None else max(0, cache - (shmem or 0) - (locked or 0)),
        events=read_counters(f"{level.folder}/memory.events", read_kept) or None,
        high_bytes=high,
        high_at=high_at,
        swap_bytes=read_number(f"{level.folder}/memory.swap.current", read_kept),
        page_tables_bytes=stat.get(b"pagetables"),
        # before Linux 5.9 one count of refaults, then one of files and one of anon
        refaults=stat.get(b"workingset_refault_file", b"workingset_refault"),
        anon_refaults=stat.get(b"workingset_refault_anon"),
        major_faults=stat.get(b"pgmajfault"),
        stalled_us=pressure.full_us,
        some_stalled_us=pressure.some_us,
        stalled_percent=pressure.full_percent,
        some_stalled_percent=pressure.some_percent,
        locked_bytes=locked,
    )


def limit_hits(
    folder: str, peak_bytes: int | None, limit_bytes: int | None, read: Read = read_file
) -> int | None:
    """Of its memory, and of its memory with swap; None where the kernel does not tell.

    Where swap is limited as memory is, as Slurm does with ConstrainSwapSpace, the kernel asks for both
    together first (mm/memcontrol.c, try_charge_memcg): failcnt stays 0, and memory.memsw.failcnt too with
    Linux 6.18, though usage was at the limit. peak_bytes: of usage, since the cgroup was made.
    """
    counts = [read_number(f"{folder}/memory.{name}", read) for name in ("failcnt", "memsw.failcnt")]
    known = [count for count in counts if count is not None]
    is_uncounted = peak_bytes is not None and limit_bytes is not None and peak_bytes >= limit_bytes
    return sum(known) if any(known) or (known and not is_uncounted) else None


def _is_the_same(known: Cgroup, path: str, limit: int | None) -> bool:
    return (known.path, known.limit_bytes) == (path, limit)


def _caught_up(
    stat: Counters, parts: tuple[bytes, ...], usage: int, levels: tuple[Level, ...], height: int
) -> Counters:
    """memory.stat of that level, read once more where it lacks much of what is in use.

    A cgroup that waits for its own counts to be gathered keeps those above from gathering theirs, for up to
    two seconds (mm/memcontrol.c, memcg_rstat_updated; seen on Linux 6.18): to read the lower one ends that.
    """
    counted = sum(stat.get(part) or 0 for part in parts)
    if height == 0 or usage - counted < max(_UNCOUNTED_BYTES, usage >> 6):
        return stat
    for level in levels[:height]:
        read_kept(f"{level.folder}/memory.stat")
    return Counters(f"{levels[height].folder}/memory.stat", read_kept)


def _smallest_limit(levels: tuple[Level, ...], file: str, wall: int) -> tuple[int | None, int]:
    """The smallest limit below `wall` on the way up, and its height; (None, 0) where there is none. Where it
    stands, and that there is none, is looked up anew after some seconds, what it is each time.
    """
    now_s = time.monotonic()
    known_s, height = _heights.get(levels[0].folder, (-_PLACES_LAST_S, 0))
    if now_s - known_s < _PLACES_LAST_S and height < len(levels):
        if height == _NOWHERE:
            return None, 0
        limit = read_number(levels[height].folder + file, read_kept)
        if limit is not None and limit < wall:
            return limit, height
    limits = [read_number(level.folder + file, read_kept) for level in levels]
    # the highest of equal limits: more processes count against it
    standing = [(limit, -height) for height, limit in enumerate(limits) if limit is not None and limit < wall]
    limit, height = min(standing, default=(None, -_NOWHERE))
    if len(_heights) > _MAX_PLACES:
        _heights.clear()
    _heights[levels[0].folder] = (now_s, -height)
    return (None, 0) if limit is None else (limit, -height)


def _smallest_high(levels: tuple[Level, ...]) -> tuple[int | None, str | None]:
    """The smallest memory.high on the way up, and where. Looked up anew after some seconds: it is seldom set,
    and a file at each level costs as much as a process.
    """
    now_s = time.monotonic()
    known = _highs.get(levels[0].folder)
    if known is None or now_s - known[0] > _PLACES_LAST_S:
        found = [(read_number(f"{level.folder}/memory.high", read_kept), level.path) for level in levels]
        told = [(high, at) for high, at in found if high is not None]
        if len(_highs) > _MAX_PLACES:
            _highs.clear()
        known = _highs[levels[0].folder] = (now_s, *min(told, default=(None, None)))
    return known[1], known[2]


def _kernel_v2(stat: Counters) -> int | None:
    """Kernel memory that cannot be given back; before Linux 5.18 it is summed from its parts."""
    kernel = stat.get(b"kernel")
    if kernel is not None:
        return max(0, kernel - (stat.get(b"slab_reclaimable") or 0))
    parts = [stat.get(key) for key in (b"kernel_stack", b"pagetables", b"percpu", b"slab_unreclaimable")]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _locked(stat: Counters, cache: int | None, shmem: int | None) -> int | None:
    """Page cache that stands on neither list of what can be given back, but on that of what cannot, which
    holds locked anon and shmem too.
    """
    never = stat.get(b"total_unevictable", b"unevictable")
    active = stat.get(b"total_active_file", b"active_file")
    inactive = stat.get(b"total_inactive_file", b"inactive_file")
    if cache is None or never is None or active is None or inactive is None:
        return None
    swapped = stat.get(b"total_swapcached", b"swapcached") or 0
    return max(0, min(never, cache - (shmem or 0) - swapped - active - inactive))


def unseen_cgroup(pid: int, root: str = "") -> str | None:
    """The path of the memory cgroup of `pid`, where no file of it can be seen from here: it may have a limit,
    and so may those above it. None where it can be seen, or where nothing tells of one.
    """
    membership = read_membership(pid, root, read_long_file)
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
    """Version, and the cgroups from the process's own up to the highest that can be seen.

    The machine's root cgroup is left out: it has no limit, and counts everybody's memory.

    Args:
        root: what stands before /proc and /sys.
        membership: content of /proc/PID/cgroup; a hybrid machine lists v1 and v2.
    """
    version, path = _own_path(membership)
    for mounted_root, mount_point in sorted(_mounts(root, version), key=lambda mount: len(mount[0])):
        levels = tuple(_levels(path, mounted_root, root + mount_point, version))
        if levels:
            return version, levels
    return version, ()


def _own_path(membership: bytes) -> tuple[int, str]:
    """Version, and the path of the cgroup that counts the memory; empty where none is told."""
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
