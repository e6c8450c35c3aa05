"""Measure what the supervisor costs: its own CPU time and resident memory next to 1, 9 and 65 processes.

An A/B run cannot resolve a thousandth of a core, so the supervisor's own time is counted: the scheduler's
nanoseconds on a core (/proc/PID/schedstat), after its first fast samples. The job is one process with 8 GB
mapped and read, and its forked workers of 10 MB each. Cases take turns, and with them a bare interpreter
that wakes once a second and does nothing.

    python benchmarks/memory_sampler.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import MB, benchmark, in_turns, summary
from benchmarks.processes import proc_bytes
from memory.record.ring import Ring, read_ring
from memory.supervision.options import command_line

GOALS = {"share_of_a_core": 0.0015, "rss_mb": 16.0}
"""At 9 processes."""
JOB = """
import mmap, os, sys
workers, mapped_bytes, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
for _ in range(workers):
    if os.fork() == 0:
        held = bytearray(b"x") * (10 << 20)
        sys.stdin.read()
        os._exit(0)
with open(f"{folder}/mapped", "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))
open(f"{folder}/up", "w").close()
sys.stdin.read()
"""
BARE = "import time\nwhile True: time.sleep(1)"


def measure_bare(seconds: float) -> dict[str, float]:
    """Share of a core of an interpreter that wakes once a second and does nothing."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", BARE])
    try:
        time.sleep(3)
        began_s, spent_s = time.monotonic(), cpu_s(process.pid)
        time.sleep(seconds)
        return {"share_of_a_core": (cpu_s(process.pid) - spent_s) / (time.monotonic() - began_s)}
    finally:
        process.kill()
        process.wait()


def measure(folder: Path, processes: int, mapped_bytes: int, seconds: float) -> dict[str, float]:
    """One supervised job: share of a core, microseconds a sample, resident megabytes."""
    (folder / "up").unlink(missing_ok=True)
    job = [sys.executable, "-S", "-c", JOB, str(processes - 1), str(mapped_bytes), str(folder)]
    process = subprocess.Popen(command_line(job, folder), stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        while not (folder / "up").exists():
            time.sleep(0.1)
        time.sleep(3)
        began_s, spent_s, taken = time.monotonic(), cpu_s(process.pid), ring_of(folder).taken
        time.sleep(seconds)
        took_s = time.monotonic() - began_s
        spent_s, taken = cpu_s(process.pid) - spent_s, ring_of(folder).taken - taken
        sample = ring_of(folder).samples[-1]
        assert sample.processes == processes
        assert (sample.tree_file_bytes or 0) >= mapped_bytes
        names = {"rss_mb": "VmRSS", "peak_rss_mb": "VmHWM", "own_anon_mb": "RssAnon"}
        held = {name: proc_bytes(field, process.pid) / MB for name, field in names.items()}
    finally:
        process.stdin.close()
        process.wait()
    return held | {
        "share_of_a_core": spent_s / took_s,
        "microseconds_a_sample": 1e6 * spent_s / max(1, taken),
        "samples_a_second": taken / took_s,
    }


def cpu_s(pid: int) -> float:
    """Time that the process has been on a core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def ring_of(folder: Path) -> Ring:
    ring = read_ring(folder / "memory.ring")
    assert ring is not None
    return ring


@benchmark(rounds=(3, 1), seconds=(30.0, 2.0), mapped_gb=(8.0, 0.1), sizes=([1, 9, 65], [1, 9]))
def measured(chosen: Any) -> Any:
    mapped_bytes = int(chosen.mapped_gb * (1 << 30))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "mapped", "wb") as file:
            file.truncate(mapped_bytes)  # of holes: its pages are cache as any other's are
        how = (mapped_bytes, chosen.seconds)
        jobs = {str(size): partial(measure, folder, size, *how) for size in chosen.sizes}
        found = in_turns({"bare": partial(measure_bare, chosen.seconds)} | jobs, chosen.rounds)
    bare = summary([one["share_of_a_core"] for one in found.pop("bare")])
    cases = [
        {"processes": int(size), **{key: summary([one[key] for one in taken]) for key in taken[0]}}
        for size, taken in found.items()
    ]
    what = "the supervisor's own CPU time (schedstat) and resident memory, sampling at 1 Hz"
    facts = {"what": what, "mapped_gb": chosen.mapped_gb, "seconds": chosen.seconds}
    facts |= {"goals_at_9_processes": GOALS, "bare_share_of_a_core": bare}
    return facts | {"cases": cases}
