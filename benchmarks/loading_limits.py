"""Measure the loader and a whole run under a memory limit that is smaller than the set, and without it.

A set of 2 GB, removed from the page cache before each (pages that were charged elsewhere would escape the
limit). The loader alone reads 2,000 batches under 300 MB; a run of 32d trains under 700 MB. Needs root and
a memory cgroup; without them it measures nothing and leaves the saved result.

    python benchmarks/loading_limits.py      # 10 minutes
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import BENCHMARKS, ROOT, benchmark, in_turns, ratios, summary
from benchmarks.loading import drop, write_tokens
from benchmarks.loading_measure import Job
from benchmarks.processes import LeftOut, memory_limit, run

LOADER_LIMIT_BYTES, RUN_LIMIT_BYTES = 300 << 20, 700 << 20
READERS = ("auto", "mmap", "pread")
"""The goal is for auto, the default."""
GOAL, TENTHS = 1.1, 10


def loader_alone(folder: Path, reader: str, batches: int, limit: int | None) -> float:
    """Seconds for the first batches from a cold cache."""
    job = Job(1024, 32, warm_up=1, batches=batches, batches_at_least=batches, options={"reader": reader})
    drop(folder)
    with memory_limit(limit) as before:
        words = [BENCHMARKS / "loading_peers.py", "Ours", "measure", folder, json.dumps(asdict(job))]
        return run([*before, sys.executable, *words], errors=False).json["seconds"]


def train(folder: Path, steps: int, limit: int | None) -> list[float]:
    """The clock of training steps after each step."""
    drop(folder)
    with tempfile.TemporaryDirectory(dir=folder.parent) as runs, memory_limit(limit) as before:
        words = [
            "model=32d", "dataset=text", "tokenizer=bytes", f"dataset.path={folder / 'tokens.npy'}",
            f"training.max_steps={steps}", "training.evals=1", "training.eval_tokens=10000",
            f"runs_dir={runs}",
        ]  # fmt: skip
        run([*before, sys.executable, ROOT / "experiments.py", *words])
        with open(next(Path(runs).rglob("metrics.csv")), newline="") as file:
            return [float(row["seconds"]) for row in csv.DictReader(file)]


def compared(taken: dict[str, list[float]]) -> dict[str, Any]:
    """Seconds with the limit and without, and their ratio."""
    own = {f"{name}_s": summary(values) for name, values in taken.items()}
    return own | {"limit_over_without": ratios(taken["limit"], taken["without"])}


def tenths_of(clock: list[float]) -> list[float]:
    """Seconds of each tenth of a run."""
    size = max(len(clock) // TENTHS, 1)
    return [after - before for before, after in itertools.pairwise([0.0, *clock[size - 1 :: size]])]


@benchmark(
    folder=Path, tokens=(30, 22), batches=(2000, 10), steps=(500, 10), rounds=(3, 1), run_rounds=(6, 1)
)
def measured(chosen: Any) -> Any:
    folder = (chosen.folder or BENCHMARKS / ".loading").resolve() / f"limits-{chosen.tokens}"
    write_tokens(folder / "tokens.npy", 1 << chosen.tokens, 257)
    try:
        with memory_limit(LOADER_LIMIT_BYTES):
            pass
    except LeftOut as error:
        print(f"skipped, and the saved result left as it is: {error}", file=sys.stderr)
        return None
    train(folder, 1, None)  # a lone file is read once before its first use: not under the limit
    alone = {}
    for reader in READERS:
        of_reader = partial(loader_alone, folder, reader, chosen.batches)
        cases = {"limit": partial(of_reader, LOADER_LIMIT_BYTES), "without": partial(of_reader, None)}
        alone[reader] = compared(in_turns(cases, chosen.rounds))
    of_steps = partial(train, folder, chosen.steps)
    runs = {"limit": partial(of_steps, RUN_LIMIT_BYTES), "without": partial(of_steps, None)}
    clocks = in_turns(runs, chosen.run_rounds)
    tenths = {name: [tenths_of(clock) for clock in each] for name, each in clocks.items()}
    # Other work can only lengthen a tenth, so the shortest of the rounds is the nearest to what it takes.
    least = {name: [min(tenth) for tenth in zip(*each, strict=True)] for name, each in tenths.items()}
    over = [round(a / b, 3) for a, b in zip(least["limit"], least["without"], strict=True)]
    whole = compared({name: [clock[-1] for clock in each] for name, each in clocks.items()})
    whole |= {"steps": chosen.steps, "tenths_s": tenths, "tenths_limit_over_without": over}
    facts = {
        "tokens": 1 << chosen.tokens, "batches": chosen.batches, "goal": GOAL,
        "loader_limit_bytes": LOADER_LIMIT_BYTES, "run_limit_bytes": RUN_LIMIT_BYTES,
    }  # fmt: skip
    return facts | {"loader": alone, "run": whole}
