"""What the supervisor costs: its own CPU time and resident memory beside 1, 9 and 65 processes.

An A/B run cannot resolve a thousandth of a core, so the supervisor's own time is counted: the scheduler's
nanoseconds on a core (/proc/PID/schedstat), from when the first fast samples are over. The job is one process
with 8 GB mapped and read, and its forked workers of 10 MB each. Cases are taken in turns, and with them a
bare interpreter that wakes once a second and does nothing: what that costs is this machine's.

    python benchmarks/memory_sampler.py [--seconds 30] [--rounds 3] [--mapped-gb 8]
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary
from memory.ring import Ring, read_ring
from memory.supervision.options import command_line

GOALS = {"share_of_a_core": 0.001, "rss_mb": 12.0}
"""At 9 processes."""
PROCESSES = (1, 9, 65)
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


def measure_bare(seconds: float) -> float:
    """Share of a core of an interpreter that wakes once a second and does nothing."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", BARE])
    try:
        time.sleep(3)
        began_s, spent_s = time.monotonic(), cpu_s(process.pid)
        time.sleep(seconds)
        return (cpu_s(process.pid) - spent_s) / (time.monotonic() - began_s)
    finally:
        process.kill()
        process.wait()


def measure(folder: Path, processes: int, mapped_bytes: int, seconds: float) -> dict[str, float]:
    """One supervised job for so long: share of a core, microseconds a sample, resident megabytes."""
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
        status = Path(f"/proc/{process.pid}/status").read_text()
    finally:
        process.stdin.close()
        process.wait()
    return {
        "share_of_a_core": spent_s / took_s,
        "microseconds_a_sample": 1e6 * spent_s / max(1, taken),
        "samples_a_second": taken / took_s,
        "rss_mb": kilobytes(status, "VmRSS") / 1024,
        "peak_rss_mb": kilobytes(status, "VmHWM") / 1024,
        "own_anon_mb": kilobytes(status, "RssAnon") / 1024,
    }


def cpu_s(pid: int) -> float:
    """Time that the process has been on a core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def kilobytes(status: str, name: str) -> int:
    return int(status.partition(f"{name}:")[2].split()[0])


def ring_of(folder: Path) -> Ring:
    ring = read_ring(folder / "memory.ring")
    assert ring is not None
    return ring


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mapped-gb", type=float, default=8.0)
    parser.add_argument("--print", action="store_true", help="do not save, as on a machine that is busy")
    options = parser.parse_args()
    mapped_bytes = int(options.mapped_gb * (1 << 30))
    taken: dict[int, list[dict[str, float]]] = {processes: [] for processes in PROCESSES}
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "mapped", "wb") as file:
            file.truncate(mapped_bytes)  # of holes: its pages are cache as any other's are
        for round_ in range(options.rounds):
            order = list(PROCESSES)
            random.Random(round_).shuffle(order)
            bare.append(measure_bare(options.seconds))
            for processes in order:
                taken[processes].append(measure(folder, processes, mapped_bytes, options.seconds))
    cases: list[dict[str, Any]] = [
        {"processes": processes, **{key: summary([one[key] for one in found]) for key in found[0]}}
        for processes, found in taken.items()
    ]
    at_nine = cases[PROCESSES.index(9)]
    result = {
        "what": "the supervisor's own CPU time (schedstat) and resident memory, sampling at 1 Hz",
        "mapped_gb": options.mapped_gb,
        "seconds": options.seconds,
        "load_average": round(os.getloadavg()[0], 1),
        "goals_at_9_processes": GOALS,
        "goals_met": all(at_nine[name]["median"] <= goal for name, goal in GOALS.items()),
        "bare_share_of_a_core": summary(bare),
        "cases": cases,
    }
    if options.print:
        print(result)
    else:
        save("memory_sampler", result)


if __name__ == "__main__":
    main()
