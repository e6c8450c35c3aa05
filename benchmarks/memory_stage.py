"""Measure what a snapshot and a stage cost, and psutil on the same processes.

In turns, over the same tree of 1, 9 and 65 processes: `snapshot()`; the same with PSS; a `stage` with its
two records, its peaks (next to a supervisor's ring) and its line; psutil's `memory_info` and
`memory_full_info`; smaps_rollup of each process. psutil's calls find RSS and USS, and smaps_rollup PSS; the
snapshot also finds the split, the cgroup with its limit, and the host.

    python benchmarks/memory_stage.py
"""

from __future__ import annotations

import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from benchmarks.harness import benchmark, in_turns, summaries
from memory import record_to, snapshot, stage
from memory.measure.process import read_pss
from memory.record.ring import RingWriter
from memory.record.samples import Sample

GOALS_US = {"snapshot": 600, "stage": 1300}
WORKER = "held = bytearray(b'x') * (10 << 20); print(flush=True); __import__('sys').stdin.read()"


@contextmanager
def workers(count: int) -> Iterator[None]:
    """Child processes of 10 MB each."""
    command, pipes = [sys.executable, "-S", "-c", WORKER], dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    started = [subprocess.Popen(command, **pipes) for _ in range(count)]
    try:
        for worker in started:
            assert worker.stdout is not None
            worker.stdout.readline()
        yield
    finally:
        for worker in started:
            worker.communicate()


@contextmanager
def mapped_file(folder: Path, megabytes: int) -> Iterator[None]:
    """A file of that size, mapped and read to its end, as a token set is."""
    if not megabytes:
        yield
        return
    path = folder / "mapped"
    path.write_bytes(b"x" * (megabytes << 20))
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for at in range(0, len(mapped), mmap.PAGESIZE):
            mapped[at]
        yield
    path.unlink()


def one_stage() -> None:
    with stage("train", step=1200):
        pass


def psutil_tree(call: str) -> None:
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        getattr(process, call)()


def timed_us(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return 1e6 * (time.perf_counter() - started)


def measure(folder: Path, count: int, megabytes: int, rounds: int) -> dict[str, Any]:
    """Microseconds of each way, with `count` processes in all."""
    lines: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(workers(count - 1))
        stack.enter_context(mapped_file(folder, megabytes))
        ring = stack.enter_context(RingWriter(folder / "memory.ring", {}))
        for _ in range(100):
            ring.add(Sample(time.time(), unreclaimable_bytes=1))
        stack.enter_context(record_to(folder / "memory.jsonl", attempt=1, echo=lines.append))
        found = snapshot()
        tree = [found.main.pid, *(worker.pid for worker in found.workers)]
        assert len(tree) == count, tree
        ways: dict[str, Callable[[], Any]] = {
            "snapshot": snapshot,
            "snapshot_with_pss": lambda: snapshot(pss=True),
            "stage": one_stage,
            "psutil_memory_info": lambda: psutil_tree("memory_info"),
            "psutil_memory_full_info": lambda: psutil_tree("memory_full_info"),
            "smaps_rollup": lambda: [read_pss(pid) for pid in tree],
        }
        timed = {name: lambda way=way: timed_us(way) for name, way in ways.items()}
        taken = in_turns(timed, rounds, warm_up=5)
    return {"processes": count, "mapped_mb": megabytes, "microseconds": summaries(taken), "line": lines[-1]}


@benchmark(rounds=(200, 3), mapped_mb=(512, 4))
def measured(chosen: Any) -> Any:
    sizes = [(1, 0), (9, 0), (9, chosen.mapped_mb), (65, 0)]
    with tempfile.TemporaryDirectory() as name:
        cases = [measure(Path(name), *size, chosen.rounds) for size in sizes]
    what = "wall time of one call, caches cold from the others: interleaved in random order"
    facts = {"what": what, "psutil": psutil.__version__, "goals_us_at_9_processes": GOALS_US}
    return facts | {"cases": cases}
