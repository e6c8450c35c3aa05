"""One sample of a job, taken from outside: its processes, its cgroup, its machine, /dev/shm."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from memory.measure.cgroup import NO_CGROUP, Cgroup, read_cgroup
from memory.measure.host import read_host
from memory.measure.process import (
    Process,
    ProcessReader,
    ReadWithChildren,
    read_descendants,
    read_process,
    read_with_children,
)
from memory.record.samples import PROCESSES, ProcessSample, Sample
from memory.supervision.neighbours import NeighbourReader

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """Unix time that ignores changes of the machine's clock, so that samples stay in order."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.clock_gettime(_STEADY)

    def now_s(self) -> float:
        """Seconds since 1970."""
        return time.clock_gettime(_STEADY) + self._offset_s


@dataclass(frozen=True, slots=True)
class Look:
    """A sample with the facts it was made of."""

    sample: Sample
    processes: tuple[Process, ...]
    """The main one first, if it lives; then by anon, the largest first."""
    job: Cgroup
    host_total_bytes: int | None
    main_lives: bool = True
    """If not, the cgroup is that of this process."""

    @property
    def limit_at(self) -> str | None:
        """The cgroup whose limit counts, or `host`."""
        return self.job.limit_at or (None if self.host_total_bytes is None else "host")

    @property
    def scope(self) -> str:
        """Whose memory U is."""
        return "process tree" if self.job.unreclaimable_bytes is None else "job"

    @property
    def nearness(self) -> float | None:
        """U as a share of the limit, from 0 to 1; None if unknown.

        If the machine itself is the limit, the memory of all its processes counts.
        """
        sample = self.sample
        shares = []
        if sample.unreclaimable_bytes is not None and sample.limit_bytes:
            shares.append(sample.unreclaimable_bytes / sample.limit_bytes)
        if self.limit_at == "host" and self.host_total_bytes and sample.host_available_bytes is not None:
            shares.append(1 - sample.host_available_bytes / self.host_total_bytes)
        return max(shares, default=None)


def look(
    main_pid: int,
    roots: tuple[int, ...],
    now_s: float,
    *,
    passed_over: tuple[int, ...] = (),
    root: str = "",
    neighbours: NeighbourReader | None = None,
    reader: ProcessReader | None = None,
) -> Look:
    """Measure now.

    Args:
        main_pid: the process whose cgroup counts.
        roots: processes whose trees are measured; of this process itself its descendants alone.
        now_s: Unix time.
        passed_over: processes that are no part of the job.
        root: folder that holds /proc and /sys.
        neighbours: reads other processes of the cgroup.
        reader: of the processes.
    """
    proc = f"{root}/proc"
    host = read_host(proc, f"{root}/dev/shm")
    found = _read_trees(roots, proc, read_with_children if reader is None else reader.read)
    # a process that is ending has no memory any more, and the kernel has moved it to another cgroup
    living = [one for one in found.values() if one.rss_bytes is not None and one.pid not in passed_over]
    processes = sorted(living, key=lambda one: (one.pid != main_pid, -(one.anon_bytes or 0)))
    lives = bool(processes) and processes[0].pid == main_pid
    job = (lives and read_cgroup(main_pid, root, host.total_bytes)) or NO_CGROUP
    if lives and job is NO_CGROUP and _has_ended(main_pid, proc):
        lives = False  # since its memory was read: the kernel has moved it to the root cgroup
    if not lives:
        job = read_cgroup(os.getpid(), root, host.total_bytes) or NO_CGROUP
    others = None
    if neighbours is not None and job is not NO_CGROUP:
        ours = {os.getpid(), *passed_over, *found}
        others = neighbours.anon_bytes(main_pid if lives else os.getpid(), job, ours, root, now_s)
    anon, shmem = _total(processes, "anon_bytes"), _total(processes, "shmem_bytes")
    page_tables = _total(processes, "page_tables_bytes")
    late = _late_bytes(job, processes)
    u = job.unreclaimable_bytes
    if u is None and anon is not None:
        u = anon + (shmem or 0)
    events = job.events or {}
    sample = Sample(
        time_s=now_s,
        unreclaimable_bytes=None if u is None else u + late,
        limit_bytes=_known(job.limit_bytes, host.total_bytes),
        usage_bytes=job.usage_bytes,
        cache_bytes=job.file_bytes,
        anon_bytes=anon if job.anon_bytes is None else job.anon_bytes + late,
        shmem_bytes=_known(job.shmem_bytes, shmem),
        kernel_bytes=job.kernel_bytes,
        page_tables_bytes=_known(job.page_tables_bytes, page_tables),
        swap_bytes=job.swap_bytes,
        tree_anon_bytes=anon,
        tree_rss_bytes=_total(processes, "rss_bytes"),
        tree_file_bytes=_total(processes, "file_bytes"),
        host_available_bytes=host.available_bytes,
        dev_shm_used_bytes=host.dev_shm_used_bytes,
        dev_shm_total_bytes=host.dev_shm_total_bytes,
        oom_kills=events.get("oom_kill"),
        oom_group_kills=events.get("oom_group_kill"),
        limit_hits=events.get("max", events.get("failcnt")),
        high_events=events.get("high"),
        refaults=job.refaults,
        major_faults=job.major_faults,
        stalled_us=job.stalled_us,
        processes=len(processes),
        neighbours_anon_bytes=others,
        tree=tuple(
            ProcessSample(one.pid, one.name, one.anon_bytes, one.file_bytes, one.shmem_bytes, one.rss_bytes)
            for one in processes[:PROCESSES]
        ),
    )
    return Look(sample, tuple(processes), job, host.total_bytes, lives)


def growth_bytes_per_s(before: Look | None, after: Look) -> float:
    """Growth between two samples of one cgroup: of U, or of all that is charged if that grew more.

    The kernel can sum the parts of U two seconds late (mm/memcontrol.c), what is charged never.
    """
    if before is None or before.limit_at != after.limit_at or after.sample.time_s <= before.sample.time_s:
        return 0.0
    pairs = [
        (getattr(before.sample, name), getattr(after.sample, name))
        for name in ("unreclaimable_bytes", "usage_bytes")
    ]
    rises = [new - old for old, new in pairs if old is not None and new is not None]
    return max(rises, default=0.0) / (after.sample.time_s - before.sample.time_s)


def _read_trees(roots: tuple[int, ...], proc: str, read: ReadWithChildren) -> dict[int, Process]:
    """Processes by pid: the roots, without this process, and all their descendants."""
    found: dict[int, Process] = {}
    for pid in roots:
        top = Process(pid, threads=1) if pid == os.getpid() else read_process(pid, proc)
        if top is None:
            continue
        if pid != os.getpid():
            found[pid] = top
        found.update((below.pid, below) for below in read_descendants(top, proc, read))
    return found


def _late_bytes(job: Cgroup, processes: list[Process]) -> int:
    """Anon bytes that the cgroup does not count yet: it sums memory.stat every two seconds.

    At least the anon of the largest process, of all that is charged, is there now.
    """
    u, counted = job.unreclaimable_bytes, job.anon_bytes
    if u is None or counted is None:
        return 0
    largest = max((one.anon_bytes or 0 for one in processes), default=0)
    return max(0, min(largest - counted, (u if job.usage_bytes is None else job.usage_bytes) - u))


def _has_ended(pid: int, proc: str) -> bool:
    process = read_process(pid, proc)
    return process is None or process.rss_bytes is None


def _known(amount: int | None, otherwise: int | None) -> int | None:
    return otherwise if amount is None else amount


def _total(processes: list[Process], part: str) -> int | None:
    known = [amount for one in processes if (amount := getattr(one, part)) is not None]
    return sum(known) if known else None
