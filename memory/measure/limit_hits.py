"""How often allocations met the limit of a v1 cgroup. No sign of a kill by itself."""

from __future__ import annotations

from memory.files.procfs import Read, read_file, read_number


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
