"""What `python -m memory` prints: one screen, the number that decides first."""

from __future__ import annotations

from collections.abc import Iterator

from experiment_utils.quantities import format_bytes
from memory.measure.snapshot import Snapshot
from memory.show.here_holders import dev_shm_lines, gpu_lines, machine_lines, process_lines, slurm_lines
from memory.show.machine_details import Details
from memory.show.screen import NEAR, amount, bar, percent, row

_STALLED_PERCENT = 10.0
_LONG_PATH = 64


def lines(details: Details, *, every: bool = False) -> Iterator[str]:
    """Line by line. every: all processes and files, not the largest alone."""
    yield _title(details)
    yield ""
    yield from _limit_and_use(details)
    yield from _limits(details)
    yield from process_lines(details, every)
    yield from gpu_lines(details)
    yield from dev_shm_lines(details, every)
    yield from machine_lines(details)
    yield from slurm_lines(details)
    yield from _not_known(details)


def _title(details: Details) -> str:
    main = details.at.main
    whose = {
        "process": f"process {main.pid} ({main.name or 'unnamed'})",
        "job": "this job",
        "machine": "this machine",
    }[details.processes_of]
    if details.slurm is not None:
        job = f"Slurm job {details.slurm.job_id}"
        whose = job if details.processes_of == "job" else f"{whose}, {job}"
    return f"Memory of {whose} on {details.host_name} ({details.system})"


def _limit_and_use(details: Details) -> Iterator[str]:
    at, job = details.at, details.at.job
    limit, u = at.limit_bytes, at.unreclaimable_bytes
    if limit is None:
        yield row("limit", "not known")
    elif at.limit_at == "host" and details.unseen_cgroup is not None:
        whole = f"at most the machine's {format_bytes(limit)}"
        yield row("limit", f"not known: cgroup {details.unseen_cgroup} cannot be seen from here; {whole}")
        yield from _asked_for(details)
        yield from _machine_use(at, limit)
    elif at.limit_at == "host":
        smaller = (
            "no smaller limit can be seen from here" if details.is_cut else "no cgroup has a smaller limit"
        )
        yield row("limit", f"{format_bytes(limit)}, all of the machine's memory: {smaller}")
        yield from _asked_for(details)
        yield from _machine_use(at, limit)
    else:
        yield row("limit", f"{format_bytes(limit)} at {at.limit_at}")
    yield from _use(at)
    if job is not None and job.file_bytes is not None:
        peak = "" if job.peak_usage_bytes is None else f", peak {format_bytes(job.peak_usage_bytes)}"
        cache = f"{format_bytes(job.file_bytes)}, given back when memory is short"
        yield row("page cache", f"{cache}: usage ({amount(job.usage_bytes)}{peak}) includes it")
    if job is not None and job.high_bytes is not None and (limit is None or job.high_bytes < limit):
        yield row(
            "high", f"{format_bytes(job.high_bytes)} at {job.high_at}: above it processes are slowed down"
        )
    yield from _events(at)
    if limit and u is not None and u >= NEAR * limit:
        yield row(
            "!", f"U is at {percent(u, limit)} of the limit: the kernel kills when it gets no page back"
        )


def _asked_for(details: Details) -> Iterator[str]:
    asked = None if details.slurm is None else details.slurm.requested_bytes
    if details.is_cut and asked is not None:
        yield row("", f"Slurm was asked for {format_bytes(asked)}: take that for the limit")


def _machine_use(at: Snapshot, total: int) -> Iterator[str]:
    left = at.host.available_bytes
    if left is None:
        return
    used = max(0, total - left)
    yield row(
        "used",
        f"{format_bytes(used)} cannot be given back, {percent(used, total)}; {format_bytes(left)} left",
    )
    yield row("", bar(used, total))


def _use(at: Snapshot) -> Iterator[str]:
    """U: of the cgroup that counts; where that is the whole machine, of the process's own."""
    limit, u = at.limit_bytes, at.unreclaimable_bytes
    if u is None:
        yield row("U", f"not known; resident (rss) {amount(at.rss_bytes)}")
        return
    parts = ", ".join(_parts(at))
    if at.scope != "job":
        yield row(
            "U", f"{format_bytes(u)} of the process tree ({parts}; a page shared since a fork counts in each)"
        )
    elif at.limit_at == "host" or not limit:
        yield row("U", f"{format_bytes(u)} of this cgroup, with all that runs in it ({parts})")
    else:
        left = f"{percent(u, limit)} of the limit; {format_bytes(max(0, limit - u))} left"
        yield row("used (U)", f"{format_bytes(u)} cannot be given back, {left}")
        yield row("", bar(u, limit))
        yield row("", parts)


def _parts(at: Snapshot) -> Iterator[str]:
    job = at.job if at.scope == "job" else None
    yield f"anon {amount(at.anon_bytes if job is None else job.anon_bytes)}"
    yield f"shm {amount(at.shmem_bytes)}"
    if job is not None and job.kernel_bytes is not None:
        yield f"kernel {format_bytes(job.kernel_bytes)}"
    if job is not None and job.locked_bytes:
        yield f"locked files {format_bytes(job.locked_bytes)}"
    if at.page_tables_bytes is not None and (job is None or job.page_tables_bytes is not None):
        yield f"page tables {format_bytes(at.page_tables_bytes)}"


def _events(at: Snapshot) -> Iterator[str]:
    job = at.job
    if job is None:
        return
    events = job.events or {}
    told = []
    if "oom_kill" in events:
        told.append(f"{events['oom_kill']:,} by the kernel for memory, since this cgroup was made")
    hits = events.get("max", events.get("failcnt"))
    if hits:
        told.append(f"the limit was met {hits:,} times (no kill: cache was given back)")
    if events.get("high"):
        told.append(f"memory.high {events['high']:,} times")
    if told:
        yield row("kills", "; ".join(told))
    if job.stalled_percent is not None:
        some = "" if job.some_stalled_percent is None else f", {job.some_stalled_percent:.1f}% some of them"
        yield row(
            "waiting", f"{job.stalled_percent:.1f}% of the last 10 s all its tasks waited for memory{some}"
        )
        if job.stalled_percent >= _STALLED_PERCENT:
            yield row("!", "it thrashes: pages are given back and read again")
    if job.swap_bytes:
        yield row("swapped", f"{format_bytes(job.swap_bytes)} of the job")


def _short(path: str) -> str:
    return f".../{path.rpartition('/')[2]}" if path.count("/") > 1 else path


def _limits(details: Details) -> Iterator[str]:
    if not details.limits:
        return
    yield ""
    yield "Limits, from its own cgroup up"
    rows = []
    for level in details.limits:
        counts = level.path == details.at.limit_at and level.limit_bytes == details.at.limit_bytes
        extra = ["counts"] if counts else []
        if level.high_bytes is not None:
            extra.append(f"high {format_bytes(level.high_bytes)}")
        if level.swap_limit_bytes is not None and level.limit_bytes is not None:
            extra.append(f"swap {format_bytes(level.swap_limit_bytes)}")
        if level.group_kill:
            extra.append("a kill takes all of it (memory.oom.group)")
        limit = "none" if level.limit_bytes is None else format_bytes(level.limit_bytes)
        rows.append((limit, level.path, ", ".join(extra)))
    if details.at.limit_at is not None and details.at.limit_at.startswith("above "):
        rows.append((amount(details.at.limit_bytes), details.at.limit_at, "counts"))
    total = details.at.host.total_bytes
    if total is not None:
        rows.append((format_bytes(total), "the machine", "counts" if details.at.limit_at == "host" else ""))
    if max(len(path) for _, path, _ in rows) > _LONG_PATH:  # where the limit stands is told above in full
        rows = [(limit, _short(path), words) for limit, path, words in rows]
    width = max(len(path) for _, path, _ in rows)
    for limit, path, extra_words in rows:
        yield f"  {limit:>9}  {path:<{width}}  {extra_words}".rstrip()
    for name, soft_limit in details.rlimits.items():
        if soft_limit is not None and name in ("as_bytes", "data_bytes"):
            limit = f"RLIMIT_{name[:-6].upper()} of the process: above it MemoryError"
            yield f"  {format_bytes(soft_limit):>9}  {limit}"


def _not_known(details: Details) -> Iterator[str]:
    if details.not_known:
        yield ""
        yield "Not known here"
        for note in details.not_known:
            yield f"  {note}"
