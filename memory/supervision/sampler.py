"""One sample of a job, taken from outside: its processes, its cgroup, its machine, /dev/shm."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from memory.files.cached_procfs import read_kept
from memory.measure.cgroup import Cgroup
from memory.measure.host import Host, read_host
from memory.measure.process import Process, Reads, read_descendants, read_process
from memory.record.samples import PROCESSES, ProcessSample, Sample

_JUMP_S = 2.0


class Clock:
    """Unix time that never goes back and follows no small correction, so that samples stay in order.

    jumps_s: by how much the machine's clock was set, each time. One that was set forward, or a machine
    that slept, is followed; one that was set back is caught up with.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()
        self._seen_s = self._offset_s
        self.jumps_s: list[float] = []

    def now_s(self) -> float:
        """Seconds since 1970."""
        offset_s = time.time() - time.monotonic()
        if abs(offset_s - self._seen_s) > _JUMP_S:
            self.jumps_s.append(offset_s - self._seen_s)
            self._seen_s = offset_s
            self._offset_s = max(self._offset_s, offset_s)
        return time.monotonic() + self._offset_s


@dataclass(frozen=True, slots=True)
class Look:
    """A sample with what it was made of. processes: the main one first, where it lives; the larger before
    the smaller. host_total_bytes: of the machine. main_lives: else the cgroup is this process's own.
    """

    sample: Sample
    processes: tuple[Process, ...]
    job: Cgroup | None
    host_total_bytes: int | None
    main_lives: bool = True

    @property
    def limit_at(self) -> str | None:
        """The cgroup whose limit counts, or `host`."""
        if self.job is not None and self.job.limit_at is not None:
            return self.job.limit_at
        return None if self.host_total_bytes is None else "host"

    @property
    def scope(self) -> str:
        """What U is about."""
        return "process tree" if self.job is None or self.job.unreclaimable_bytes is None else "job"

    @property
    def nearness(self) -> float | None:
        """How much of the limit is taken by what cannot be given back, from 0 to 1.

        Where the machine itself is the limit, the memory of all who use it counts.
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
    reads: Reads | None = None,
    host: Host | None = None,
) -> Look:
    """Measure now.

    Args:
        main_pid: the process whose cgroup counts.
        roots: processes whose trees are measured. Of this process itself its descendants alone.
        now_s: Unix time.
        passed_over: processes that are no part of the job.
        root: what stands before /proc and /sys.
        reads: of processes; by default everything, anew.
        host: with its /dev/shm, if it is known already.
    """
    proc = f"{root}/proc"
    reads = reads or Reads()
    host = host or read_host(proc, f"{root}/dev/shm")
    found: dict[int, Process] = {}
    for pid in roots:
        top = Process(pid, threads=1) if pid == os.getpid() else reads.process(pid, proc)
        if top is None:
            continue
        if pid != os.getpid():
            found[pid] = top
        found.update((below.pid, below) for below in read_descendants(top, proc, reads))
    # one that is ending has no memory any more, and stands in another cgroup
    living = [one for one in found.values() if one.rss_bytes is not None and one.pid not in passed_over]
    ordered = sorted(living, key=lambda one: (one.pid != main_pid, -(one.anon_bytes or 0)))
    lives = bool(ordered) and ordered[0].pid == main_pid
    job = reads.cgroup(main_pid if lives else os.getpid(), root, host.total_bytes)
    if lives and (job is None or job.limit_at is None) and _has_ended(main_pid, proc):
        # since its memory was read: the kernel has put it into the root's cgroup, where there is no limit
        lives, job = False, reads.cgroup(os.getpid(), root, host.total_bytes)
    anon, shmem = _total(ordered, "anon_bytes"), _total(ordered, "shmem_bytes")
    u = None if job is None else job.unreclaimable_bytes
    counted = None if job is None else job.anon_bytes
    if u is None and anon is not None:
        u = anon + (shmem or 0)
    elif u is not None and counted is not None:
        # the kernel adds memory.stat up every two seconds; usage, and what a process holds, are of now
        largest = max((one.anon_bytes or 0 for one in ordered), default=0)
        usage = None if job is None else job.usage_bytes
        late = max(0, min(largest - counted, (u if usage is None else usage) - u))
        u, counted = u + late, counted + late
    beside = None
    if job is not None:
        ours = {os.getpid(), *passed_over, *found}
        beside = reads.beside(main_pid if lives else os.getpid(), job.path, ours, root)
    limit = None if job is None else job.limit_bytes
    events = {} if job is None or job.events is None else job.events
    sample = Sample(
        time_s=now_s,
        unreclaimable_bytes=u,
        limit_bytes=host.total_bytes if limit is None else limit,
        usage_bytes=None if job is None else job.usage_bytes,
        cache_bytes=None if job is None else job.file_bytes,
        anon_bytes=anon if counted is None else counted,
        shmem_bytes=shmem if job is None or job.shmem_bytes is None else job.shmem_bytes,
        kernel_bytes=None if job is None else job.kernel_bytes,
        page_tables_bytes=_total(ordered, "page_tables_bytes")
        if job is None or job.page_tables_bytes is None
        else job.page_tables_bytes,
        swap_bytes=_more(job, "swap_bytes"),
        tree_anon_bytes=anon,
        tree_rss_bytes=_total(ordered, "rss_bytes"),
        tree_file_bytes=_total(ordered, "file_bytes"),
        host_available_bytes=host.available_bytes,
        dev_shm_used_bytes=host.dev_shm_used_bytes,
        dev_shm_total_bytes=host.dev_shm_total_bytes,
        oom_kills=events.get("oom_kill"),
        oom_group_kills=events.get("oom_group_kill"),
        limit_hits=events.get("max", events.get("failcnt")),
        high_events=events.get("high"),
        refaults=_more(job, "refaults"),
        major_faults=_more(job, "major_faults"),
        stalled_us=_more(job, "stalled_us"),
        processes=len(ordered),
        beside_anon_bytes=beside,
        tree=tuple(
            ProcessSample(one.pid, one.name, one.anon_bytes, one.file_bytes, one.shmem_bytes, one.rss_bytes)
            for one in ordered[:PROCESSES]
        ),
    )
    return Look(sample, tuple(ordered), job, host.total_bytes, lives)


def _has_ended(pid: int, proc: str) -> bool:
    words = (read_kept(f"{proc}/{pid}/statm") or b"").split(None, 2)
    if len(words) > 1 and words[1] != b"0":
        return False  # a tenth of the work of its status, at each look
    process = read_process(pid, proc)
    return process is None or process.rss_bytes is None


def _more(job: Cgroup | None, name: str) -> int | None:
    return getattr(job, name, None)


def _total(processes: list[Process], part: str) -> int | None:
    known = [amount for one in processes if (amount := getattr(one, part)) is not None]
    return sum(known) if known else None
