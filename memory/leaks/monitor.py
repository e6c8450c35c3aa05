"""Watches the memory of a process, its children, its job and its GPU step by step, for use within a run.

A sample is a few small files of /proc, and is left out when the last one was so short ago that all of them
together would take more than 0.5% of a core. Memory used for it is constant.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from typing import Any

from memory.files.procfs import read_counters
from memory.leaks.detector import Leak, LeakWatch
from memory.leaks.format import in_words, leak_words
from memory.measure.cgroup import find_levels, read_membership
from memory.measure.cuda_allocator import Gpu, read_gpu, read_gpu_allocated
from memory.measure.process import Process, read_descendants, read_process
from memory.measure.snapshot import Snapshot, snapshot
from memory.record.stages import note_gpu

log = logging.getLogger("memory")

_SHARE = 0.005
_LEAST_BETWEEN_S = 0.002
_CHILDREN_EVERY_S = 1.0
_GPU_NOTED_EVERY_S = 1.0
_MOST_PROCESSES = 64
_FORK_PAGES = "no one process: pages copied since a fork, or processes beside this run"


@dataclass(frozen=True)
class LeakReport:
    """What grows. total: of the job's anon where a cgroup limits it, else of the process and its children.

    scope: `job` or `process tree`. processes: by name, `main` and `worker PID`, those that live. holder: who
    grows where the total leaks, as far as it can be told.
    """

    total: Leak = Leak()
    scope: str = "process tree"
    processes: dict[str, Leak] = field(default_factory=dict)
    holder: str | None = None
    gpu: Leak = Leak()

    def words(self) -> str | None:
        """For the end of a stage's line; None while too little was seen."""
        of_host, of_gpu = leak_words(self.total, self.holder), leak_words(self.gpu)
        if of_gpu is None:
            return of_host
        # a part of the line that begins with GPU is left out of a narrow terminal: a leak is not
        between = "; " if self.gpu.is_significant else " | "
        return between.join(filter(None, [of_host, f"GPU {of_gpu}"]))

    def to_json(self) -> dict[str, Any]:
        """For a record."""
        leaks = {name: leak.to_json() for name, leak in self.processes.items() if leak.is_significant}
        found = {"scope": self.scope, **self.total.to_json(), "holder": self.holder, "processes": leaks}
        return found | ({"gpu": self.gpu.to_json()} if self.gpu.samples else {})


class LeakMonitor:
    """`sample` after each step, `look` now and then. Neither ever raises."""

    def __init__(self, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._total, self._gpu = LeakWatch(), LeakWatch()
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
            cpu_s = time.thread_time()  # not the clock: on a busy machine that tells of others' work
            self._sample(step, started)
            self._next_s = started + max(_LEAST_BETWEEN_S, (time.thread_time() - cpu_s) / _SHARE)
        except Exception as error:
            self._is_broken = True
            log.debug("growth by step cannot be watched", exc_info=error)

    def look(self, step: float) -> LeakReport:
        """What is known by `step`, the last one."""
        if self._first is None or self._is_broken:
            return LeakReport()
        try:
            return self._look(step)
        except Exception as error:
            log.debug("growth by step cannot be told", exc_info=error)
            return LeakReport()

    def warning(self, report: LeakReport, left_s: float | None) -> str | None:
        """What a user must hear: a leak that reaches the limit before the run ends; told once, and again when
        the time that is left has halved. left_s: until the run ends; None: not known.
        """
        leaks = [leak.eta_s for leak in (report.total, report.gpu) if leak.is_significant]
        eta_s = min((eta for eta in leaks if eta is not None), default=None)
        if eta_s is None or (left_s is not None and eta_s > left_s):
            return None
        if self._warned_s is not None and eta_s > self._warned_s / 2:
            return None
        self._warned_s = eta_s
        until = "" if left_s is None else f"; the run needs {in_words(left_s)} more"
        return f"memory {report.words()}{until}. memory.attribute=true tells who holds it"

    def left_s(self, steps_left: float) -> float | None:
        """How long so many steps take, at the pace since the first sample."""
        pace = self._step_s()
        return None if pace is None else pace * steps_left

    def _sample(self, step: float, now_s: float) -> None:
        main = read_process(self._pid)
        if main is None or main.anon_bytes is None:
            return
        self._last = (step, now_s)
        workers = self._measured_workers(main, now_s)
        for process in (main, *workers):
            if process.anon_bytes is not None and self._has_room(process.pid):
                self._processes.setdefault(process.pid, LeakWatch()).add(step, process.anon_bytes)
        total: int | None = sum(process.anon_bytes or 0 for process in (main, *workers))
        if self._stat is not None:
            counters = read_counters(self._stat)
            total = counters.get("total_rss", counters.get("anon"))
        if total is not None:
            self._total.add(step, total)
        if self._pid == os.getpid():
            self._sample_gpu(step, now_s)

    def _sample_gpu(self, step: float, now_s: float) -> None:
        """Sample the device without waiting for it; the driver is asked once a second."""
        allocated = read_gpu_allocated()
        if allocated is None:
            return
        self._gpu.add(step, allocated)
        if now_s >= self._noted_s:
            self._noted_s = now_s + _GPU_NOTED_EVERY_S
            note_gpu(read_gpu())

    def _measured_workers(self, main: Process, now_s: float) -> tuple[Process, ...]:
        """Looked for once a second; in between those that are known are measured."""
        if now_s < self._children_s:
            known = (read_process(pid) for pid in self._workers)
            return tuple(process for process in known if process is not None)
        self._children_s = now_s + _CHILDREN_EVERY_S
        workers = read_descendants(main)
        self._workers = tuple(process.pid for process in workers)
        gone = set(self._processes) - {main.pid, *self._workers}
        for pid in gone:
            del self._processes[pid]
        return workers

    def _has_room(self, pid: int) -> bool:
        return pid in self._processes or len(self._processes) < _MOST_PROCESSES

    def _look(self, step: float) -> LeakReport:
        self._last = (step, time.monotonic())
        now: Snapshot = snapshot(self._pid)
        step_s = self._step_s()
        limit, left = now.limit_bytes, now.left_bytes
        at = None if limit is None or left is None else limit - left
        total = self._total.look(limit_bytes=limit, at_bytes=at, step_s=step_s)
        processes = {self._name(pid): watch.look(step_s=step_s) for pid, watch in self._processes.items()}
        scope = "process tree" if self._stat is None else "job"
        gpu = Leak() if now.gpu is None else self._gpu.look(**_room_of(now.gpu), step_s=step_s)
        return LeakReport(total, scope, processes, _holder(total, processes, scope), gpu)

    def _name(self, pid: int) -> str:
        return "main" if pid == self._pid else f"worker {pid}"

    def _step_s(self) -> float | None:
        if self._first is None or self._last[0] <= self._first[0]:
            return None
        return (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])


def _room_of(gpu: Gpu) -> dict[str, int]:
    used = gpu.reserved_bytes if gpu.used_bytes is None else gpu.used_bytes
    return {"limit_bytes": gpu.total_bytes, "at_bytes": used - gpu.unused_bytes}


def _holder(total: Leak, processes: dict[str, Leak], scope: str) -> str | None:
    """The processes that make up half of the growth, the largest first; `main` goes without saying."""
    if not total.is_significant or not total.slope_bytes_per_step:
        return None
    growing = sorted(
        ((leak.slope_bytes_per_step or 0.0, name) for name, leak in processes.items() if leak.is_significant),
        reverse=True,
    )
    named: list[str] = []
    explained = 0.0
    for slope, name in growing:
        if explained >= 0.75 * total.slope_bytes_per_step or len(named) == 3:
            break
        named.append(name)
        explained += slope
    if explained >= total.slope_bytes_per_step / 2:
        return " and ".join(named)
    return _FORK_PAGES if scope == "job" else None


def _job_stat(pid: int) -> str | None:
    """memory.stat of the cgroup whose limit counts; None where the machine's memory is the limit."""
    job = snapshot(pid).job
    if job is None or job.limit_at is None or job.anon_bytes is None:
        return None
    membership = read_membership(pid)
    _, levels = find_levels("", membership or b"")
    return next((f"{level.folder}/memory.stat" for level in levels if level.path == job.path), None)
