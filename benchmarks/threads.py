"""Measure what waiting threads cost: runs of 32d that wait awake, asleep, and as a run chooses.

With a small vocabulary (bytes) and a large one; alone, next to one busy process, and two such runs on the
same cores, in turns.

    python benchmarks/threads.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import benchmark, in_turns, ratios, summaries
from benchmarks.planned_run import core_command, on_cpu, planned_run, run_facts
from training.devices.device import available_threads
from training.devices.thread_waiting import ASLEEP, VARIABLES

BATCH = 32
ALONE, BESIDE, TWO = "alone", "beside a busy process", "two runs on the same cores"
CHOSEN = "as a run chooses"
SETTINGS = {"awake": {"GOMP_SPINCOUNT": "300000"}, "asleep": ASLEEP, CHOSEN: {}}
"""The first is OpenMP's default."""


def step_seconds(place: str, setting: str, vocabulary: int, steps: int, folder: Path) -> float:
    """Mean seconds of a step of whole runs, without their first steps."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if place == BESIDE else None
    unset = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    how = on_cpu(folder, vocabulary, steps, BATCH) | {
        "model": "32d", "training__micro_batch": BATCH, "training__checkpoint_every": 10**6,
        "training__threads": available_threads(),
    }  # fmt: skip
    try:
        runs = [planned_run(folder, **how) for _ in range(2 if place == TWO else 1)]
        processes = [
            subprocess.Popen(map(str, core_command(run)), env=unset | SETTINGS[setting]) for run in runs
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit(f"error: a run in {folder} failed: see its log.txt")
    finally:
        if busy is not None:
            busy.kill()
            busy.wait()
    return statistics.mean(run_facts(run)["train"] for run in runs) / (steps - 1)


@benchmark(rounds=(5, 1), steps=([100, 12], [4, 2]))
def measured(chosen: Any) -> Any:
    cases = []
    with tempfile.TemporaryDirectory() as name:
        vocabularies = dict(zip((257, 50_257), chosen.steps, strict=True))
        for vocabulary, place in product(vocabularies, (ALONE, BESIDE, TWO)):
            how = (vocabulary, vocabularies[vocabulary], Path(name))
            settings = {setting: partial(step_seconds, place, setting, *how) for setting in SETTINGS}
            seconds = in_turns(settings, chosen.rounds)
            over = {setting: ratios(each, seconds[CHOSEN])["median"] for setting, each in seconds.items()}
            cases.append(
                {"vocabulary": vocabulary, "place": place, "step_s": summaries(seconds), "over_chosen": over}
            )
            print(cases[-1], file=sys.stderr, flush=True)
    what = f"a step of whole runs, 32d, batch {BATCH} x 128, {available_threads()} threads"
    return {"what": what, "cases": cases}
