"""One moment of a run: U in parts that add up to it, and the amounts that do not count in U."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from experiment_utils.json_values import integer, mapping, mappings
from memory.record.samples import Sample

PARTS = ("main", "workers", "shmem", "kernel", "other")
"""Parts of U, from the bottom of the stack. They add up to U."""


class Holder(NamedTuple):
    """A process and its anonymous memory."""

    pid: int
    name: str
    anon_bytes: int


@dataclass(frozen=True, slots=True)
class Moment:
    """Amounts in bytes at one time; None if unknown."""

    at_s: float
    """Seconds since the attempt began."""
    u: int | None = None
    """Unreclaimable memory of the job; of the process tree if no cgroup counts it."""
    main: int | None = None
    """Anon of the main process."""
    workers: int | None = None
    """Anon of its descendants, without the pages that they share with it."""
    other: int | None = None
    """Anon of other processes in the cgroup, and the rest of U."""
    shmem: int | None = None
    kernel: int | None = None
    cache: int | None = None
    """Page cache of the job (of a process tree: mapped files), which is reclaimed when memory is short."""
    limit: int | None = None
    rss: int | None = None
    """Resident memory, summed over the processes."""
    gpu: int | None = None
    """Tensors on the GPU."""
    gpu_reserved: int | None = None
    """Memory that torch's allocator holds."""
    gpu_used: int | None = None
    """Memory of the device that all processes use."""
    gpu_busy: int | None = None
    """Percent of the time in which a kernel ran on the device."""
    gpu_watts: float | None = None
    """Power draw of the device."""
    is_sample: bool = False
    is_by_rss: bool = False
    """A peak within a stage, whose U is known by resident memory only."""
    holders: tuple[Holder, ...] = ()
    """The processes, the main one first."""


AMOUNTS = ("u", *PARTS, "cache", "limit", "rss", "gpu", "gpu_reserved", "gpu_used")
"""Fields that are amounts, the most important first."""


def split(
    u: int | None, *, anon: int | None, shmem: int | None, kernel: int | None, main: int | None,
    tree: int | None, neighbours: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Split U into `PARTS`, which add up to it exactly and are never negative.

    A kernel counts in batches, and the files are read one after the other, so the amounts need not add up. An
    excess is cut from the last of shmem, kernel, main, workers; a shortfall is `other`.

    Args:
        u: Unreclaimable memory; None if unknown.
        anon: Anon of the cgroup, each page counted once.
        shmem: Shared memory.
        kernel: Kernel memory.
        main: Anon of the main process.
        tree: Anon of the main process and its descendants. Pages that are shared since a fork count in each,
            so it can exceed `anon`.
        neighbours: Anon of other processes in the cgroup, if known.
    """
    if u is None:
        return dict.fromkeys(PARTS)
    main = anon if main is None else main
    workers = None if tree is None or main is None else tree - main
    if workers is not None and anon is not None and main is not None and neighbours is not None:
        workers = min(workers, anon - main - neighbours)
    left, found = max(0, u), {}
    for name, amount in (("shmem", shmem), ("kernel", kernel), ("main", main), ("workers", workers)):
        found[name] = min(max(0, amount or 0), left)
        left -= found[name]
    return {**found, "other": left}


def sampled_moment(sample: Sample, at_s: float) -> Moment:
    """The moment that a sample of the supervisor describes."""
    tree = sample.tree
    parts = split(
        sample.unreclaimable_bytes, anon=sample.anon_bytes, shmem=sample.shmem_bytes,
        kernel=sample.kernel_bytes, main=tree[0].anon_bytes if tree else None, tree=sample.tree_anon_bytes,
        neighbours=sample.neighbours_anon_bytes,
    )  # fmt: skip
    return Moment(
        at_s, u=sample.unreclaimable_bytes, **parts,
        cache=sample.tree_file_bytes if sample.cache_bytes is None else sample.cache_bytes,
        limit=sample.limit_bytes, rss=sample.tree_rss_bytes, gpu_reserved=sample.gpu_reserved_bytes,
        gpu_used=sample.gpu_used_bytes, gpu_busy=sample.gpu_busy_percent,
        gpu_watts=None if sample.gpu_power_mw is None else sample.gpu_power_mw / 1000, is_sample=True,
        holders=tuple(Holder(p.pid, p.name, p.anon_bytes) for p in tree if p.anon_bytes is not None),
    )  # fmt: skip


def recorded_moment(snapshot: Mapping[str, Any], at_s: float) -> Moment:
    """The moment that the snapshot of a stage record describes. The snapshot can hold anything."""
    job, main = mapping(snapshot.get("job")), mapping(snapshot.get("main"))
    holders = tuple(
        Holder(pid, str(process.get("name", "")), anon)
        for process in (main, *mappings(snapshot.get("workers")))
        if (pid := integer(process.get("pid"))) is not None
        and (anon := integer(process.get("anon_bytes"))) is not None
    )
    has_job = integer(job.get("anon_bytes")) is not None
    counted = job if has_job else snapshot
    anon, shmem = integer(counted.get("anon_bytes")), integer(counted.get("shmem_bytes"))
    kernel, locked = (integer(job.get(f"{name}_bytes")) if has_job else None for name in ("kernel", "locked"))
    parts = (anon, shmem, kernel, locked)
    u = integer(snapshot.get("unreclaimable_bytes")) if anon is None else sum(part or 0 for part in parts)
    tree = sum(holder.anon_bytes for holder in holders) if holders else None
    gpu = mapping(snapshot.get("gpu"))
    total, free = integer(gpu.get("total_bytes")), integer(gpu.get("free_bytes"))
    return Moment(
        at_s, u=u,
        **split(u, anon=anon, shmem=shmem, kernel=kernel, main=integer(main.get("anon_bytes")), tree=tree),
        cache=integer(counted.get("file_bytes")), limit=integer(snapshot.get("limit_bytes")),
        rss=integer(snapshot.get("rss_bytes")), gpu=integer(gpu.get("allocated_bytes")),
        gpu_reserved=integer(gpu.get("reserved_bytes")),
        gpu_used=None if total is None or free is None else max(0, total - free), holders=holders,
    )  # fmt: skip


def at_peak(end: Moment, u: int, at_s: float) -> Moment:
    """The moment within a stage at which its main process held `u`, given the moment of the stage's end."""
    main, *others = end.holders or (None,)
    holders = () if main is None else (main._replace(anon_bytes=u), *others)
    parts = split(u, anon=u, shmem=None, kernel=None, main=u, tree=None)
    rss = max(u, end.rss or 0)
    return replace(end, at_s=at_s, u=u, rss=rss, **parts, holders=holders, is_by_rss=True)
