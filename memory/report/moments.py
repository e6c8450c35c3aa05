"""One moment of a run as a plot shows it: U in parts that add up to it, and what is beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiment_utils.json_values import integer, mapping, mappings
from memory.record.samples import Sample

PARTS = ("main", "workers", "shmem", "kernel", "other")
"""Of U, from the bottom of the stack. They add up to it."""


class Holder(NamedTuple):
    """A process and its anon."""

    pid: int
    name: str
    anon_bytes: int


@dataclass(frozen=True, slots=True)
class Moment:
    """In bytes; None where it is not known.

    at_s: seconds since the attempt began. u: unreclaimable memory of the job, or of the process tree where no
    cgroup counts it. main, workers: anon of the main process, and what its descendants hold beyond the pages
    they share with it; other: anon of processes beside the run in its cgroup, and what is not told apart.
    cache: page cache of the job (of a process tree: files mapped), which is given back when memory is short.
    rss: summed over the processes. gpu, gpu_reserved: of tensors, and of torch's allocator; gpu_used: of the
    device, by all processes. holders: the processes, the main one first.
    """

    at_s: float
    u: int | None = None
    main: int | None = None
    workers: int | None = None
    other: int | None = None
    shmem: int | None = None
    kernel: int | None = None
    cache: int | None = None
    limit: int | None = None
    rss: int | None = None
    gpu: int | None = None
    gpu_reserved: int | None = None
    gpu_used: int | None = None
    is_sample: bool = False
    holders: tuple[Holder, ...] = ()


COLUMNS = ("u", *PARTS, "cache", "limit", "rss", "gpu", "gpu_reserved", "gpu_used")
"""Those that are amounts, the most important first."""


def split(
    u: int | None,
    *,
    anon: int | None,
    shmem: int | None,
    kernel: int | None,
    main: int | None,
    tree: int | None,
    beside: int | None = None,
) -> dict[str, Any]:
    """U in `PARTS`, none below 0, which add up to it exactly.

    A kernel counts in batches and the files are read one after the other, so that the amounts that were
    read need not add up: what is too much is left out, from the last of shmem, kernel, main, workers on; what
    is too little is `other`.

    main: anon of the main process. tree: of it and its descendants, pages that are shared since a fork
    counted in each, so that it may be above `anon`, which counts them once. beside: of it what others hold.
    """
    if u is None:
        return dict.fromkeys(PARTS)
    left = max(0, u)
    found: dict[str, int | None] = {}
    main = anon if main is None else main
    workers = None if tree is None or main is None else tree - main
    if workers is not None and anon is not None and main is not None and beside is not None:
        workers = min(workers, anon - main - beside)
    wanted = (
        ("shmem", shmem),
        ("kernel", kernel),
        ("main", main),
        ("workers", workers),
    )
    for name, amount in wanted:
        taken = min(max(0, amount or 0), left)
        found[name] = taken
        left -= taken
    found["other"] = left
    return found


def of_sample(sample: Sample, at_s: float) -> Moment:
    """What the supervisor saw."""
    tree = sample.tree
    main = tree[0].anon_bytes if tree else None
    return Moment(
        at_s,
        u=sample.unreclaimable_bytes,
        **split(
            sample.unreclaimable_bytes,
            anon=sample.anon_bytes,
            shmem=sample.shmem_bytes,
            kernel=sample.kernel_bytes,
            main=main,
            tree=sample.tree_anon_bytes,
            beside=sample.beside_anon_bytes,
        ),
        cache=sample.tree_file_bytes if sample.cache_bytes is None else sample.cache_bytes,
        limit=sample.limit_bytes,
        rss=sample.tree_rss_bytes,
        gpu_reserved=sample.gpu_reserved_bytes,
        gpu_used=sample.gpu_used_bytes,
        is_sample=True,
        holders=tuple(Holder(p.pid, p.name, p.anon_bytes) for p in tree if p.anon_bytes is not None),
    )


def of_snapshot(snapshot: Mapping[str, Any], at_s: float) -> Moment:
    """What a stage record holds, which may be anything."""
    job, main = mapping(snapshot.get("job")), mapping(snapshot.get("main"))
    processes = [main, *mappings(snapshot.get("workers"))]
    holders = tuple(
        Holder(pid, str(process.get("name", "")), anon)
        for process in processes
        if (pid := integer(process.get("pid"))) is not None
        and (anon := integer(process.get("anon_bytes"))) is not None
    )
    has_job = integer(job.get("anon_bytes")) is not None
    anon = integer((job if has_job else snapshot).get("anon_bytes"))
    shmem = integer((job if has_job else snapshot).get("shmem_bytes"))
    kernel = integer(job.get("kernel_bytes")) if has_job else None
    locked = integer(job.get("locked_bytes")) if has_job else None
    parts = (anon, shmem, kernel, locked)
    u = integer(snapshot.get("unreclaimable_bytes")) if anon is None else sum(part or 0 for part in parts)
    gpu = mapping(snapshot.get("gpu"))
    total, free = integer(gpu.get("total_bytes")), integer(gpu.get("free_bytes"))
    return Moment(
        at_s,
        u=u,
        **split(
            u,
            anon=anon,
            shmem=shmem,
            kernel=kernel,
            main=integer(main.get("anon_bytes")),
            tree=sum(holder.anon_bytes for holder in holders) if holders else None,
        ),
        cache=integer((job if has_job else snapshot).get("file_bytes")),
        limit=integer(snapshot.get("limit_bytes")),
        rss=integer(snapshot.get("rss_bytes")),
        gpu=integer(gpu.get("allocated_bytes")),
        gpu_reserved=integer(gpu.get("reserved_bytes")),
        gpu_used=None if total is None or free is None else max(0, total - free),
        holders=holders,
    )
