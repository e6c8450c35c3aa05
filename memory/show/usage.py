"""Memory in use against its limit, as rows: the part that `here` and `watch` have in common."""

from __future__ import annotations

from collections.abc import Iterator

from experiment_utils.quantities import format_bytes
from memory.measure.cgroup import Cgroup
from memory.measure.snapshot import Snapshot
from memory.record.samples import Sample
from memory.show.screen import NEAR, Line, amount, bar, percent

_NO_JOB = Cgroup(0, "")


def sample_of(at: Snapshot) -> Sample:
    """A snapshot in the form of the ring."""
    job = at.job if at.job is not None and at.scope == "job" else _NO_JOB
    counters = job.events or {}
    return Sample(
        at.time_s,
        at.unreclaimable_bytes,
        at.limit_bytes,
        job.usage_bytes,
        job.file_bytes,
        at.anon_bytes if job is _NO_JOB else job.anon_bytes,
        at.shmem_bytes,
        job.kernel_bytes,
        swap_bytes=job.swap_bytes,
        tree_rss_bytes=at.rss_bytes,
        host_available_bytes=at.host.available_bytes,
        oom_kills=counters.get("oom_kill"),
        limit_hits=counters.get("max", counters.get("failcnt")),
    )


def parts_of(sample: Sample) -> dict[str, int]:
    """Parts of U, those that are known."""
    parts = {
        "anon": sample.anon_bytes,
        "shm": sample.shmem_bytes,
        "kernel": sample.kernel_bytes,
        "locked files": sample.locked_bytes if sample.cache_bytes is not None else None,
    }
    return {
        name: size for name, size in parts.items() if size is not None and (size or name != "locked files")
    }


def usage_rows(sample: Sample, limit_at: str | None, limit_text: str = "") -> Iterator[Line]:
    """Limit, use, its parts, page cache and kills.

    Args:
        sample: a moment.
        limit_at: path of the cgroup with the limit, or `host`.
        limit_text: shown as the limit, if it needs more than an amount and a place.
    """
    limit, used, available = sample.limit_bytes, sample.unreclaimable_bytes, sample.host_available_bytes
    is_host = limit_at == "host"
    place = ", all of the machine's memory" if is_host else f" at {limit_at}" if limit_at else ""
    yield Line("limit", limit_text or ("unknown" if limit is None else f"{format_bytes(limit)}{place}"))
    if is_host and limit and available is not None:
        taken = max(0, limit - available)
        share = percent(taken, limit)
        yield Line("used", f"{format_bytes(taken)} of the machine, {share}; {format_bytes(available)} left")
        yield bar(taken, limit)
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts_of(sample).items())
    if used is None:
        yield Line("U", f"unknown; resident (rss) {amount(sample.tree_rss_bytes)}")
    elif sample.cache_bytes is None:
        shared = "shared pages count in each"
        yield Line("U", f"{format_bytes(used)} of the process tree ({parts}; {shared})")
    elif is_host or not limit:
        yield Line("U", f"{format_bytes(used)} of this cgroup ({parts})")
    else:
        share, left = percent(used, limit), format_bytes(max(0, limit - used))
        yield Line(
            "used (U)", f"{format_bytes(used)} cannot be given back, {share} of the limit; {left} left"
        )
        yield bar(used, limit)
        yield Line("", parts)
    if sample.cache_bytes is not None:
        total = (
            "" if sample.usage_bytes is None else f": usage {format_bytes(sample.usage_bytes)} includes it"
        )
        yield Line(
            "page cache", f"{format_bytes(sample.cache_bytes)}, given back when memory is short{total}"
        )
    hits = f"; the limit was met {sample.limit_hits:,} times" if sample.limit_hits else ""
    if sample.oom_kills is not None or hits:
        killed = f"{sample.oom_kills or 0:,} by the kernel for memory, since this cgroup was made"
        yield Line("kills", killed + hits, "red" if sample.oom_kills else "")
    if sample.swap_bytes:
        yield Line("swapped", f"{format_bytes(sample.swap_bytes)} of the job")
    if limit and used is not None and used >= NEAR * limit:
        yield Line("!", f"U is at {percent(used, limit)} of the limit, where the kernel kills", "red")
