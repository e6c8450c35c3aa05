"""All memory of a process, its children, its cgroup, its machine and its GPU at one moment."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from memory.files.procfs import exists
from memory.measure.cgroup import Cgroup, read_cgroup, unseen_cgroup
from memory.measure.cuda_allocator import Gpu, read_gpu
from memory.measure.host import Host, left_bytes, read_host, run_memory
from memory.measure.peaks import PEAKS
from memory.measure.process import (
    Process,
    ProcessReader,
    read_descendants,
    read_process,
    read_pss,
    read_with_children,
)


@dataclass(frozen=True)
class Snapshot:
    """Memory at one moment, in bytes; None where the system does not report it."""

    time_s: float
    main: Process
    workers: tuple[Process, ...] = ()
    """All descendants of `main`, in no particular order."""
    job: Cgroup | None = None
    """The cgroup whose limit counts."""
    host: Host = Host()
    gpu: Gpu | None = None
    notes: tuple[str, ...] = ()
    """Facts that are missing, and why."""
    mark_bytes: int | None = None
    """The kernel's VmHWM of `main`. Stages reset it; `main.peak_rss_bytes` is since the process began."""

    @property
    def scope(self) -> str:
        """Whose memory `unreclaimable_bytes` is: of the `job` (its cgroup) or only of the `process tree`."""
        return "process tree" if self.job is None or self.job.unreclaimable_bytes is None else "job"

    @property
    def unreclaimable_bytes(self) -> int | None:
        """U. Of a process tree with children it is an upper bound: pages shared since a fork count twice."""
        if self.job is not None and self.job.unreclaimable_bytes is not None:
            return self.job.unreclaimable_bytes
        anon, shmem = self._total("anon_bytes"), self._total("shmem_bytes")
        return None if anon is None else anon + (shmem or 0)

    @property
    def run_bytes(self) -> int | None:
        """The run's memory, as `run_memory` defines it; of RSS on a system that does not split it."""
        if self.unreclaimable_bytes is None:
            return self.rss_bytes
        anon, shmem = self.anon_bytes, self._total("shmem_bytes")
        own = None if anon is None else anon + (shmem or 0)
        return run_memory(self.unreclaimable_bytes, own, self.limit_at)

    @property
    def limit_bytes(self) -> int | None:
        """Limit of U: the smallest one up the cgroup tree, or all of the machine's memory."""
        limit = None if self.job is None else self.job.limit_bytes
        return self.host.total_bytes if limit is None else limit

    @property
    def limit_at(self) -> str | None:
        """The cgroup whose limit it is, or `host`."""
        if self.job is not None and self.job.limit_at is not None:
            return self.job.limit_at
        return None if self.host.total_bytes is None else "host"

    @property
    def left_bytes(self) -> int | None:
        """Memory that can still be allocated, below the limit and on the machine."""
        return left_bytes(self.limit_bytes, self.unreclaimable_bytes, self.host.available_bytes)

    @property
    def anon_bytes(self) -> int | None:
        """Anonymous memory of the process and its workers; shared pages count once if the cgroup counts."""
        own, workers = self.main.anon_bytes, self.workers_anon_bytes
        return None if own is None else own + (workers or 0)

    @cached_property
    def workers_anon_bytes(self) -> int | None:
        """Anonymous memory of the workers without pages that they share with `main` since the fork.

        The kernel lists a shared page in each process, the cgroup counts it once: the workers' own memory is
        at most the cgroup's anon less main's.
        """
        counted = [worker.anon_bytes for worker in self.workers if worker.anon_bytes is not None]
        if not counted:
            return None
        of_job = None if self.job is None else self.job.anon_bytes
        if of_job is None or self.main.anon_bytes is None:
            return sum(counted)
        return min(sum(counted), max(0, of_job - self.main.anon_bytes))

    @property
    def rss_bytes(self) -> int | None:
        """Sum of resident memory, as top shows it: a shared page or file page counts in each process."""
        return self._total("rss_bytes")

    @property
    def file_bytes(self) -> int | None:
        """Mapped files within `rss_bytes`: page cache, which the kernel reclaims when memory is short."""
        return self._total("file_bytes")

    @property
    def shmem_bytes(self) -> int | None:
        """Shared memory (/dev/shm, shared maps): of the job, mapped or not, else the sum over processes."""
        of_job = None if self.job is None else self.job.shmem_bytes
        return self._total("shmem_bytes") if of_job is None else of_job

    @property
    def pss_bytes(self) -> int | None:
        """Resident memory in which a page that these processes share counts once; None unless requested."""
        return self._total("pss_bytes")

    @property
    def page_tables_bytes(self) -> int | None:
        """Page tables of all these processes; on v2 as the cgroup counts them."""
        of_job = None if self.job is None else self.job.page_tables_bytes
        return self._total("page_tables_bytes") if of_job is None else of_job

    @cached_property
    def amounts(self) -> dict[str, int]:
        """Sums by name, from which a stage computes its change; unknown ones are left out."""
        found = {
            "unreclaimable_bytes": self.unreclaimable_bytes,
            "anon_bytes": self.anon_bytes,
            "shmem_bytes": self.shmem_bytes,
            "file_bytes": self.file_bytes,
            "rss_bytes": self.rss_bytes,
            "gpu_bytes": None if self.gpu is None else self.gpu.allocated_bytes,
        }
        return {name: amount for name, amount in found.items() if amount is not None}

    def to_json(self) -> dict[str, Any]:
        """The sums first, then the parts. docs/run-folder.md explains each key."""
        return {
            "scope": self.scope,
            "limit_bytes": self.limit_bytes,
            "limit_at": self.limit_at,
            **dict.fromkeys(_SUMS),
            **self.amounts,
            "main": _fields(self.main),
            "workers": [_fields(worker) for worker in self.workers],
            "job": None if self.job is None else _fields(self.job),
            "host": _fields(self.host),
            "gpu": None if self.gpu is None else _fields(self.gpu),
            "notes": list(self.notes),
        }

    def _total(self, part: str) -> int | None:
        amounts = [getattr(process, part) for process in (self.main, *self.workers)]
        known = [amount for amount in amounts if amount is not None]
        return sum(known) if known else None


def snapshot(pid: int | None = None, root: str | os.PathLike[str] = "/", *, pss: bool = False) -> Snapshot:
    """Measure now. It raises nothing: what cannot be read is None, with a note.

    Args:
        pid: the process whose tree is measured; this one by default.
        root: folder that holds /proc and /sys. Without /proc, psutil measures this machine.
        pss: also read each process's `pss_bytes`: 0.3 ms a process and 18 ms per GB that it maps.
    """
    root, pid = os.fspath(root).rstrip("/"), os.getpid() if pid is None else pid
    proc = f"{root}/proc"
    is_own = pid == os.getpid()
    measured = read_process(pid, proc)
    main = Process(pid) if measured is None else measured
    workers = read_descendants(main, proc, _READER.read if is_own else read_with_children)
    if pss:
        main = replace(main, pss_bytes=read_pss(pid, proc))
        workers = tuple(replace(worker, pss_bytes=read_pss(worker.pid, proc)) for worker in workers)
    gpu = read_gpu() if is_own else None
    host = read_host(proc, f"{root}/dev/shm")
    job = read_cgroup(pid, root, host.total_bytes)
    return Snapshot(
        time_s=time.time(),
        main=PEAKS.of_process(main) if is_own else main,
        workers=workers,
        job=job,
        host=host,
        gpu=None if gpu is None else PEAKS.of_gpu(gpu),
        notes=tuple(_notes(measured, job, proc, unseen_cgroup(pid, root) if job is None else None)),
        mark_bytes=main.peak_rss_bytes,
    )


_READER = ProcessReader()
_SUMS = ("unreclaimable_bytes", "anon_bytes", "shmem_bytes", "file_bytes", "rss_bytes")
"""Always in a record, unknown or not."""


def _fields(part: Process | Cgroup | Host | Gpu) -> dict[str, Any]:
    """Like dataclasses.asdict, which copies every value deeply and takes ten times as long."""
    return {name: getattr(part, name) for name in part.__slots__}


def _notes(main: Process | None, job: Cgroup | None, proc: str, unseen: str | None) -> list[str]:
    notes = []
    if not exists(f"{proc}/self"):
        notes.append(
            "no /proc on this system: only resident memory is known, not what of it can be reclaimed"
        )
    elif main is None:
        notes.append("the process is gone, or may not be read")
    elif main.anon_bytes is None:
        notes.append("this kernel's /proc does not split resident memory into anon and file")
    if unseen is not None:
        notes.append(
            f"the limit of memory cgroup {unseen}: no file of it can be seen from here; only the process "
            "tree is counted, against the host's memory"
        )
    elif job is None:
        notes.append(
            "no memory cgroup of its own: only the process tree is counted, against the host's memory"
        )
    elif job.unreclaimable_bytes is None:
        notes.append(f"memory.stat of cgroup {job.path} cannot be read: only the process tree is counted")
    return notes
