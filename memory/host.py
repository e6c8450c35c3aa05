"""The machine as a whole: how much memory it has and how much of it is still to be had."""

from __future__ import annotations

from dataclasses import dataclass

from memory.kernel_files import kilobytes, read_file

_HEAD_BYTES = 120
"""Of /proc/meminfo: MemTotal, MemFree and MemAvailable are its first lines."""


@dataclass(frozen=True, slots=True)
class Host:
    """In bytes; None where the system does not tell.

    available_bytes is the kernel's own estimate of what can be allocated without swapping, which
    counts page cache as free (proc(5), MemAvailable).
    """

    total_bytes: int | None = None
    available_bytes: int | None = None


def read_host(proc: str = "/proc") -> Host:
    """Read /proc/meminfo; psutil answers where that is missing."""
    head = (read_file(f"{proc}/meminfo") or b"")[:_HEAD_BYTES]
    total, available = kilobytes(head, (b"MemTotal:", b"MemAvailable:"))
    return _ask_psutil() if total is None else Host(total, available)


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
