"""What a snapshot and a stage cost, against psutil on the same processes.

Interleaved in one run, in random order, over the same tree of 1, 9 and 65 processes: `snapshot()`; the same
with PSS; a `stage` with its two records, its peaks (beside a supervisor's ring) and its line; psutil's
`memory_info` and `memory_full_info`; smaps_rollup of each process. psutil's calls find RSS and USS, and
smaps_rollup PSS; the snapshot also finds the split, the cgroup with its limit, and the host.

    python benchmarks/memory_stage.py [--rounds 200]
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import psutil

from benchmarks.environment import save, summary
from memory import record_to, snapshot, stage
from memory.process import read_pss
from memory.ring import RingWriter
from memory.samples import Sample

GOALS_US = {"snapshot": 600, "stage": 1300}
WORKER = "held = bytearray(b'x') * (10 << 20); print(flush=True); __import__('sys').stdin.read()"


@contextmanager
def workers(count: int) -> Iterator[None]:
    """So many child processes of 10 MB each."""
    command = [sys.executable, "-S", "-c", WORKER]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
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
    if megabytes == 0:
        yield
        return
    path = folder / "mapped"
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(b"x" * (1 << 20))
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


def rollup_of_the_tree() -> None:
    """The files alone, of processes that are known already: the least that PSS costs."""
    for pid in _tree:
        read_pss(pid)


_tree: list[int] = []
CONTENDERS: dict[str, Callable[[], Any]] = {
    "snapshot": snapshot,
    "snapshot_with_pss": lambda: snapshot(pss=True),
    "stage": one_stage,
    "psutil_memory_info": lambda: psutil_tree("memory_info"),
    "psutil_memory_full_info": lambda: psutil_tree("memory_full_info"),
    "smaps_rollup": rollup_of_the_tree,
}


def measure(folder: Path, count: int, megabytes: int, rounds: int) -> dict[str, Any]:
    """Microseconds of each contender, with `count` processes in all."""
    taken: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    lines: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(workers(count - 1))
        stack.enter_context(mapped_file(folder, megabytes))
        ring = stack.enter_context(RingWriter(folder / "memory.ring", {}))
        for _ in range(100):
            ring.add(Sample(time.time(), unreclaimable_bytes=1))
        stack.enter_context(record_to(folder / "memory.jsonl", attempt=1, echo=lines.append))
        found_tree = snapshot()
        _tree[:] = [found_tree.main.pid, *(worker.pid for worker in found_tree.workers)]
        assert len(_tree) == count, _tree
        for round_ in range(-5, rounds):
            order = list(CONTENDERS)
            random.Random(round_).shuffle(order)
            for name in order:
                started = time.perf_counter()
                CONTENDERS[name]()
                if round_ >= 0:
                    taken[name].append(1e6 * (time.perf_counter() - started))
    found = {name: summary(values) for name, values in taken.items()}
    return {
        "processes": count,
        "mapped_mb": megabytes,
        "microseconds": found,
        **{
            f"{theirs}_over_{ours}": round(found[theirs]["median"] / found[ours]["median"], 1)
            for theirs in ("psutil_memory_full_info", "smaps_rollup")
            for ours in ("snapshot", "stage")
        },
        "line": lines[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        cases = [
            measure(Path(name), count, megabytes, options.rounds)
            for count, megabytes in [(1, 0), (9, 0), (9, 512), (65, 0)]
        ]
    medians = {name: cases[1]["microseconds"][name]["median"] for name in GOALS_US}
    save(
        "memory_stage",
        {
            "what": "wall time of one call, caches cold from the others: interleaved in random order",
            "load_average": round(os.getloadavg()[0], 1),
            "psutil": psutil.__version__,
            "goals_us_at_9_processes": GOALS_US,
            "goals_met": all(medians[name] <= goal for name, goal in GOALS_US.items()),
            "cases": cases,
        },
    )


if __name__ == "__main__":
    main()
