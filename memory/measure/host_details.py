"""More of the machine than a snapshot tells: swap, page cache, promises, and how long its tasks waited."""

from __future__ import annotations

from dataclasses import dataclass

from memory.files.procfs import read_file, read_number, to_number
from memory.measure.pressure import read_pressure


@dataclass(frozen=True, slots=True)
class HostDetails:
    """More of /proc/meminfo, in bytes, for a report. cache_bytes: page cache, without shmem. committed_bytes:
    promised to all processes; commit_limit_bytes is enforced only where `overcommit` is 2. stalled_percent,
    some_stalled_percent: share of the last 10 s in which all, or some, tasks waited for memory.
    """

    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    cache_bytes: int | None = None
    shmem_bytes: int | None = None
    huge_pages_bytes: int | None = None
    committed_bytes: int | None = None
    commit_limit_bytes: int | None = None
    overcommit: int | None = None
    stalled_percent: float | None = None
    some_stalled_percent: float | None = None

    @property
    def swap_used_bytes(self) -> int | None:
        """What has been swapped out."""
        if self.swap_total_bytes is None or self.swap_free_bytes is None:
            return None
        return self.swap_total_bytes - self.swap_free_bytes


_DETAILS = (
    b"SwapTotal:",
    b"SwapFree:",
    b"Cached:",
    b"Shmem:",
    b"Hugetlb:",
    b"Committed_AS:",
    b"CommitLimit:",
)


def read_host_details(root: str = "") -> HostDetails:
    """What is told; all None without /proc."""
    lines = (read_file(f"{root}/proc/meminfo") or b"").splitlines()
    amounts = {words[0]: words[1] for words in map(bytes.split, lines) if len(words) > 1}
    found = [to_number(amounts.get(name, b"")) for name in _DETAILS]
    swap, free, cached, shmem, huge, committed, limit = (None if n is None else 1024 * n for n in found)
    pressure = read_pressure(f"{root}/proc/pressure/memory")
    return HostDetails(
        swap,
        free,
        None if cached is None else max(0, cached - (shmem or 0)),
        shmem,
        huge,
        committed,
        limit,
        read_number(f"{root}/proc/sys/vm/overcommit_memory"),
        pressure.full_percent,
        pressure.some_percent,
    )
