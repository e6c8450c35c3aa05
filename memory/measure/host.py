"""The machine as a whole: how much memory it has and how much of it is still to be had."""

from __future__ import annotations

import os
from dataclasses import dataclass

from memory.files.cached_procfs import read_kept
from memory.files.procfs import exists, kilobytes

_HEAD_BYTES = 120
"""Of /proc/meminfo: MemTotal, MemFree and MemAvailable are its first lines."""


@dataclass(frozen=True, slots=True)
class Host:
    """In bytes; None where the system does not tell.

    available_bytes is the kernel's own estimate of what can be allocated without swapping, which
    counts page cache as free (proc(5), MemAvailable). dev_shm_total_bytes, dev_shm_used_bytes: of the file
    system /dev/shm, whose files count as shmem; full, it ends its writers with SIGBUS.
    """

    total_bytes: int | None = None
    available_bytes: int | None = None
    dev_shm_total_bytes: int | None = None
    dev_shm_used_bytes: int | None = None


def read_host(proc: str = "/proc", dev_shm: str | None = None) -> Host:
    """Read /proc/meminfo, and ask the file system `dev_shm` if it is given. Where there is no /proc psutil
    answers; where there is one it reads the same file, and fails on what is garbage.
    """
    head = (read_kept(f"{proc}/meminfo") or b"")[:_HEAD_BYTES]
    total, available = kilobytes(head, (b"MemTotal:", b"MemAvailable:"))
    space = (None, None) if dev_shm is None else dev_shm_space(dev_shm)
    if total is None and not exists(f"{proc}/self"):
        return _ask_psutil()
    return Host(total, available, *space)


def left_bytes(limit: int | None, used: int | None, available: int | None) -> int | None:
    """What can still be had under a limit of which so much is used, on a machine where so much is available:
    others may hold the rest of it. None where the first two are not known.
    """
    if limit is None or used is None:
        return None
    left = limit - used if available is None else min(limit - used, available)
    return max(0, left)


def dev_shm_space(folder: str = "/dev/shm") -> tuple[int | None, int | None]:
    """(total, used) in bytes, 2 us; (None, None) where there is no such folder (macOS)."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None, None
    return found.f_blocks * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize


def _ask_psutil() -> Host:
    try:
        import psutil
    except ImportError:
        return Host()
    try:
        found = psutil.virtual_memory()
    except (psutil.Error, OSError, RuntimeError):
        return Host()
    return Host(found.total, found.available)
