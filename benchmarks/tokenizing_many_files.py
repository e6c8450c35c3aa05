"""Measure the CPU time a file of tokenizing 1,000 and 30,000 small files, with and without --dedup.

The time that the command takes for one file is subtracted: the interpreter and the tokenizer. Small folders
run many times, as their difference is small.

    python benchmarks/tokenizing_many_files.py    # about 1 minute
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import ROOT, benchmark, goal, in_turns
from benchmarks.processes import run

WAYS = {"plain": [], "dedup": ["--dedup", "documents"]}


def cpu_s(folder: Path, files: int, way: str) -> float:
    """CPU time of the command over the folder with that number of files."""
    command = [sys.executable, ROOT / "pretokenize_dataset.py", str(files), *WAYS[way], "--overwrite"]
    command += ["--tokenizer", "bytes", "--output", f"{files}.npy"]
    return run(command, cwd=folder, env={"OMP_NUM_THREADS": "1"}).cpu_s


@benchmark(files=(30_000, 2_000), rounds=(1, 1), small_rounds=(7, 2))
def measured(chosen: Any) -> Any:
    sizes = (1, 1_000, chosen.files)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in sizes:
            (folder / str(size)).mkdir()
            for number in range(size):
                (folder / str(size) / f"{number:06}.txt").write_text(f"document {number:06} of a corpus.\n")
        cases = {(way, size): partial(cpu_s, folder, size, way) for way in WAYS for size in sizes}
        small = {case: measure for case, measure in cases.items() if case[1] != chosen.files}
        large = {case: measure for case, measure in cases.items() if case[1] == chosen.files}
        times = in_turns(small, chosen.small_rounds) | in_turns(large, chosen.rounds)
        found = {case: statistics.median(seconds) for case, seconds in times.items()}
    rows: dict[str, Any] = {}
    for way in WAYS:
        start, few, many = (found[way, size] for size in sizes)
        few_ms, many_ms = few - start, 1_000 * (many - start) / chosen.files
        rows[way] = {
            "start_cpu_s": round(start, 3), "cpu_ms_per_file": {"1000": few_ms, str(chosen.files): many_ms},
            "ratio": round(many_ms / few_ms, 3),
        }  # fmt: skip
    goals = [
        goal(f"CPU time a file, {chosen.files:,} files against 1,000, {way}", row["ratio"], at_most=1.3)
        for way, row in rows.items()
    ]
    return {"ways": rows, "goals": goals}
