"""Watch the memory of a process, its children, its job and its GPU by step, from within a run.

A sample reads a few small files of /proc. It is skipped if it came so soon that all samples together would
take more than 0.5% of a core. Memory for the samples is constant.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from typing import Any

from memory.files.procfs import read_counters
from memory.leaks.detector import Leak, LeakWatch
from memory.leaks.format import format_growth
from memory.measure.cgroup import find_levels, read_membership
from memory.measure.cuda_allocator import Gpu, read_gpu, read_gpu_allocated
from memory.measure.process import Process, read_descendants, read_process
from memory.measure.snapshot import Snapshot, snapshot
from memory.record.stage_line import duration
from memory.record.stages import note_gpu

log = logging.getLogger("memory")

_SHARE = 0.005
_LEAST_BETWEEN_S = 0.002
_CHILDREN_EVERY_S = 1.0
_GPU_NOTED_EVERY_S = 1.0
_MOST_PROCESSES = 64
_FORK_PAGES = "no one process: pages copied since a fork, or processes of others in the cgroup"


@dataclass(frozen=True)
class LeakReport:
    """Growth by step of everything that is watched.

    total: anon of the job if a cgroup limits it, else of the process and its children.
    scope: of total and shmem, `job` or `process tree`.
    processes: anon by name, `main` and `worker PID`, of those that live.
    holder: names of the processes that grow if the total leaks, as far as they are known.
    gpu: what tensors hold on this process's device.
    shmem: shared memory, in /dev/shm or in shared maps.
    """

    total: Leak = Leak()
    scope: str = "process tree"
    processes: dict[str, Leak] = field(default_factory=dict)
    holder: str | None = None
    gpu: Leak = Leak()
    shmem: Leak = Leak()

    @property
    def leaks(self) -> dict[str, Leak]:
        """Everything that leaks, by its name in a line."""
        kinds = {"": self.total, "shm ": self.shmem, "GPU ": self.gpu}
        return {kind: leak for kind, leak in kinds.items() if leak.is_significant}

    @property
    def eta_s(self) -> float | None:
        """Seconds until the first limit is reached; None without a leak, or if the limit is unknown."""
        return min((leak.eta_s for leak in self.leaks.values() if leak.eta_s is not None), default=None)

    def parts(self) -> list[str]:
        """Parts of a stage's line: `+0.3 MB/step, no leak`; empty if too few samples were taken."""
        leaks, eta_s = self.leaks, self.eta_s
        shown = [f"{kind}{format_growth(leak)}" for kind, leak in leaks.items()]
        shown += filter(None, [format_growth(self.total)]) if not leaks else ()
        shown += [f"limit in {duration(eta_s)}"] if eta_s is not None else []
        return shown + ([f"in {self.holder}"] if self.holder else [])

    def to_json(self) -> dict[str, Any]:
        """For a record."""
        leaks = {name: leak.to_json() for name, leak in self.processes.items() if leak.is_significant}
        found = {"scope": self.scope, **self.total.to_json(), "holder": self.holder, "processes": leaks}
        others = {"shmem": self.shmem, "gpu": self.gpu}
        return found | {name: leak.to_json() for name, leak in others.items() if leak.samples}


class LeakMonitor:
    """`sample` after each step, `look` from time to time. Neither ever raises."""

    def __init__(self, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._total, self._shmem, self._gpu = LeakWatch(), LeakWatch(), LeakWatch()
        self._processes: dict[int, LeakWatch] = {}
        self._workers: tuple[int, ...] = ()
        self._stat: str | None = None
        self._next_s = self._children_s = self._noted_s = 0.0
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)
        self._warned_s: float | None = None
        self._is_broken = False

    def sample(self, step: float) -> None:
        """Measure after this step, if it is time."""
        started = time.monotonic()
        if started < self._next_s or self._is_broken:
            return
        try:
            if self._first is None:
                self._first, self._stat = (step, started), _job_stat(self._pid)
            cpu_s = time.thread_time()  # not the clock, which on a busy machine counts the work of others
            self._sample(step, started)
            self._next_s = started + max(_LEAST_BETWEEN_S, (time.thread_time() - cpu_s) / _SHARE)
        except Exception as error:
            self._is_broken = True
            log.debug("growth by step cannot be watched", exc_info=error)

    def look(self, step: float) -> LeakReport:
        """Report the growth up to `step`, the last one."""
        if self._first is None or self._is_broken:
            return LeakReport()
        try:
            return self._look(step)
        except Exception as error:
            log.debug("growth by step cannot be reported", exc_info=error)
            return LeakReport()

    def warning(self, report: LeakReport, left_s: float | None) -> str | None:
        """Message about a leak that reaches a limit before the run ends; None if there is none to print.

        It is printed once, and again when the time to the limit has halved. left_s: until the run ends; None:
        unknown.
        """
        eta_s = report.eta_s
        if eta_s is None or (left_s is not None and eta_s > left_s):
            return None
        if self._warned_s is not None and eta_s > self._warned_s / 2:
            return None
        self._warned_s = eta_s
        to_go = [] if left_s is None else [f"{duration(left_s)} to go"]
        return f"memory grows: {'; '.join(report.parts() + to_go)}. Its holder: memory.attribute=true"

    def left_s(self, steps_left: float) -> float | None:
        """Seconds that `steps_left` steps take, at the pace since the first sample."""
        pace = self._step_s()
        return None if pace is None else pace * steps_left

    def _sample(self, step: float, now_s: float) -> None:
        main = read_process(self._pid)
        if main is None or main.anon_bytes is None:
            return
        self._last = (step, now_s)
        processes = (main, *self._measured_workers(main, now_s))
        for process in processes:
            if process.anon_bytes is not None and self._has_room(process.pid):
                self._processes.setdefault(process.pid, LeakWatch()).add(step, process.anon_bytes)
        anon: int | None = sum(process.anon_bytes or 0 for process in processes)
        shmem: int | None = sum(process.shmem_bytes or 0 for process in processes)
        if self._stat is not None:
            counters = read_counters(self._stat)
            anon = counters.get("total_rss", counters.get("anon"))
            shmem = counters.get("total_shmem", counters.get("shmem"))
        gpu = read_gpu_allocated() if self._pid == os.getpid() else None
        for watch, amount in ((self._total, anon), (self._shmem, shmem), (self._gpu, gpu)):
            if amount is not None:
                watch.add(step, amount)
        if gpu is not None and now_s >= self._noted_s:  # the driver is asked once a second
            self._noted_s = now_s + _GPU_NOTED_EVERY_S
            note_gpu(read_gpu())

    def _measured_workers(self, main: Process, now_s: float) -> tuple[Process, ...]:
        """Look for children once a second, and in between measure the known ones."""
        if now_s < self._children_s:
            known = (read_process(pid) for pid in self._workers)
            return tuple(process for process in known if process is not None)
        self._children_s = now_s + _CHILDREN_EVERY_S
        workers = read_descendants(main)
        self._workers = tuple(process.pid for process in workers)
        for pid in set(self._processes) - {main.pid, *self._workers}:
            del self._processes[pid]
        return workers

    def _has_room(self, pid: int) -> bool:
        return pid in self._processes or len(self._processes) < _MOST_PROCESSES

    def _look(self, step: float) -> LeakReport:
        self._last = (step, time.monotonic())
        now: Snapshot = snapshot(self._pid)
        pace, left = self._step_s(), now.left_bytes
        total = self._total.look(left_bytes=left, step_s=pace)
        processes = {self._name(pid): watch.look(step_s=pace) for pid, watch in self._processes.items()}
        scope = "process tree" if self._stat is None else "job"
        return LeakReport(
            total,
            scope,
            processes,
            _holder(total, processes, scope),
            gpu=self._gpu.look(left_bytes=_left_on(now.gpu), step_s=pace),
            shmem=self._shmem.look(left_bytes=_left_for_shmem(now), step_s=pace),
        )

    def _name(self, pid: int) -> str:
        return "main" if pid == self._pid else f"worker {pid}"

    def _step_s(self) -> float | None:
        if self._first is None or self._last[0] <= self._first[0]:
            return None
        return (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])


def _left_for_shmem(now: Snapshot) -> int | None:
    """Bytes that can still be written to /dev/shm, which has a size of its own."""
    total, used = now.host.dev_shm_total_bytes, now.host.dev_shm_used_bytes
    free = None if total is None or used is None else max(0, total - used)
    return min((left for left in (now.left_bytes, free) if left is not None), default=None)


def _left_on(gpu: Gpu | None) -> int | None:
    """Bytes that tensors can still get on the device."""
    if gpu is None:
        return None
    used = gpu.reserved_bytes if gpu.used_bytes is None else gpu.used_bytes
    return gpu.total_bytes - used + gpu.unused_bytes


def _holder(total: Leak, processes: dict[str, Leak], scope: str) -> str | None:
    """Names of the processes that make up most of the growth, the largest first; None if none does."""
    if not total.is_significant or not total.slope_bytes_per_step:
        return None
    growing = {
        name: leak.slope_bytes_per_step or 0.0 for name, leak in processes.items() if leak.is_significant
    }
    if sum(growing.values()) < total.slope_bytes_per_step / 2:
        return _FORK_PAGES if scope == "job" else None
    largest = sorted(growing, key=growing.__getitem__, reverse=True)
    more = [f"{len(largest) - 3} more"] if len(largest) > 3 else []
    return " and ".join([*largest[:3], *more])


def _job_stat(pid: int) -> str | None:
    """memory.stat of the cgroup whose limit counts; None if the machine's memory is the limit."""
    job = snapshot(pid).job
    if job is None or job.limit_at is None or job.anon_bytes is None:
        return None
    membership = read_membership(pid)
    _, levels = find_levels("", membership or b"")
    return next((f"{level.folder}/memory.stat" for level in levels if level.path == job.path), None)
