"""Memory of the whole machine: how much it has, how much is available, swap, page cache, promises."""

from __future__ import annotations

import os
from dataclasses import dataclass

from memory.files.procfs import exists, kilobytes, read_file, read_number
from memory.measure.pressure import read_pressure

_HEAD_BYTES = 120
"""Length of the part of /proc/meminfo that has MemTotal, MemFree and MemAvailable."""


@dataclass(frozen=True, slots=True)
class Host:
    """Memory of the machine; None where the system does not report it."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    """MemAvailable: the kernel's estimate of what can be allocated without swapping; page cache is free."""
    dev_shm_total_bytes: int | None = None
    """Size of the file system /dev/shm. Its files count as shmem; full, it ends its writers with SIGBUS."""
    dev_shm_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HostDetails:
    """More of the machine, for a report; None where the system does not report it."""

    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    cache_bytes: int | None = None
    """Page cache, without shmem."""
    shmem_bytes: int | None = None
    huge_pages_bytes: int | None = None
    committed_bytes: int | None = None
    """Promised to all processes."""
    commit_limit_bytes: int | None = None
    """Enforced only if `overcommit` is 2."""
    overcommit: int | None = None
    stalled_percent: float | None = None
    """Share of the last 10 s in which all tasks waited for memory."""
    some_stalled_percent: float | None = None
    """Share of the last 10 s in which at least one task waited."""

    @property
    def swap_used_bytes(self) -> int | None:
        """Memory that has been swapped out."""
        if self.swap_total_bytes is None or self.swap_free_bytes is None:
            return None
        return self.swap_total_bytes - self.swap_free_bytes


_DETAILS = (
    b"SwapTotal:", b"SwapFree:", b"Cached:", b"Shmem:", b"Hugetlb:", b"Committed_AS:", b"CommitLimit:",
)  # fmt: skip


def read_host(proc: str = "/proc", dev_shm: str | None = None) -> Host:
    """Read /proc/meminfo, and ask the file system `dev_shm` if it is given; without /proc ask psutil."""
    head = (read_file(f"{proc}/meminfo") or b"")[:_HEAD_BYTES]
    total, available = kilobytes(head, (b"MemTotal:", b"MemAvailable:"))
    space = (None, None) if dev_shm is None else dev_shm_space(dev_shm)
    if total is None and not exists(f"{proc}/self"):
        return _ask_psutil()
    return Host(total, available, *space)


def read_host_details(root: str = "") -> HostDetails:
    """Read the rest of /proc/meminfo, overcommit and memory pressure; all None without /proc."""
    lines = (read_file(f"{root}/proc/meminfo") or b"").splitlines()
    amounts = b"\n".join(line for line in lines if line.endswith(b" kB"))
    swap, free, cached, shmem, huge, committed, limit = kilobytes(amounts, _DETAILS)
    pressure = read_pressure(f"{root}/proc/pressure/memory")
    return HostDetails(
        swap_total_bytes=swap,
        swap_free_bytes=free,
        cache_bytes=None if cached is None else max(0, cached - (shmem or 0)),
        shmem_bytes=shmem,
        huge_pages_bytes=huge,
        committed_bytes=committed,
        commit_limit_bytes=limit,
        overcommit=read_number(f"{root}/proc/sys/vm/overcommit_memory"),
        stalled_percent=pressure.full_percent,
        some_stalled_percent=pressure.some_percent,
    )


def run_memory(u_bytes: int | None, own_bytes: int | None, limit_at: str | None) -> int | None:
    """The number that is called the run's memory, on the screen, in tables and in reports.

    If a cgroup has a limit, a job's say, it is U: all that the limit counts. If only the machine limits, U
    also counts other runs and programs, so it is the unreclaimable memory of the run's own processes.

    Args:
        u_bytes: U.
        own_bytes: anon and shared memory of the run's processes; None if it was not recorded.
        limit_at: path of the cgroup with the limit, or `host`.
    """
    return u_bytes if limit_at != "host" or own_bytes is None else own_bytes


def left_bytes(limit: int | None, used: int | None, available: int | None) -> int | None:
    """Bytes that can still be allocated; None if the limit or the use is unknown.

    Args:
        limit: bytes that may be used.
        used: bytes of it that are in use.
        available: bytes of the machine that are available; less than the rest of the limit if others use it.
    """
    if limit is None or used is None:
        return None
    left = limit - used if available is None else min(limit - used, available)
    return max(0, left)


def dev_shm_space(folder: str = "/dev/shm") -> tuple[int | None, int | None]:
    """Total and used bytes of a file system, in 2 us; (None, None) if the folder does not exist (macOS)."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize


def _ask_psutil() -> Host:
    try:
        import psutil

        found = psutil.virtual_memory()
    except Exception:  # psutil is missing, or one of its own errors
        return Host()
    return Host(found.total, found.available)
