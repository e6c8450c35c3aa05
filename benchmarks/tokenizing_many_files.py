"""CPU time a file of tokenizing 1,000 and 100,000 small files, with and without --dedup.

Each command is a process of its own; its CPU time does not depend on what else the machine does as its wall
time would. What the command takes for one file is subtracted: the start of the interpreter, the tokenizer.
The sizes take turns in every round.

    python benchmarks/tokenizing_many_files.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save

SIZES = (1, 1_000, 100_000)
GOAL = 1.3
"""Time a file of the largest over that of the smaller: 100 if time grew with the square of the files."""


def make_files(folder: Path, count: int) -> None:
    """Texts of 30 bytes, each another one."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:06}.txt").write_text(f"document {number:06} of a corpus.\n")


def cpu_s(command: list[str], folder: Path) -> float:
    """User and system time of one process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, cwd=folder, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    ways: dict[str, list[str]] = {"plain": [], "dedup": ["--dedup", "documents"]}
    times: dict[str, dict[int, list[float]]] = {way: {size: [] for size in SIZES} for way in ways}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in SIZES:
            make_files(folder / str(size), size)
        for _ in range(rounds):
            for way, flags in ways.items():
                for size in SIZES:
                    command = [sys.executable, str(ROOT / "pretokenize_dataset.py"), str(size), *flags]
                    command += ["--tokenizer", "bytes", "--output", f"{size}.npy", "--overwrite"]
                    times[way][size].append(cpu_s(command, folder))
    found = {}
    for way, of_size in times.items():
        seconds = {size: statistics.median(taken) for size, taken in of_size.items()}
        each = {size: (seconds[size] - seconds[1]) / size for size in SIZES[1:]}
        ratio = each[SIZES[2]] / each[SIZES[1]]
        found[way] = {
            "cpu_s": {str(size): round(value, 3) for size, value in seconds.items()},
            "cpu_s_per_file": {str(size): round(value, 6) for size, value in each.items()},
            "ratio": round(ratio, 3),
            "goal_met": ratio <= GOAL,
        }
    save("tokenizing_many_files", {"unit": "seconds of CPU time", "goal": GOAL, "rounds": rounds, **found})


if __name__ == "__main__":
    main()
