"""Measure what `logging=csv|tensorboard|wandb` costs a run: steps, and the logger's process.

Whole runs of one small model, without and with each logger, in turns. Loggers whose package is not installed
(`make install-test`) are left out. Each takes every step, also W&B's, whose option takes every tenth.

    python benchmarks/loggers.py
"""

from __future__ import annotations

import csv
import os
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from benchmarks.harness import ROOT, benchmark, in_turns, ratios, summary
from benchmarks.processes import proc_bytes, run
from conf.between_keys.logging_rules import is_missing
from experiment_utils.metrics_file import read_tail

GOAL = 0.01


def measure(to: str | None, steps: int, threads: int) -> dict[str, float]:
    """One run: ms of a step by the clock and of CPU, after a warm-up; memory and CPU of the logger."""
    warm_up = steps // 10
    beside: dict[int, tuple[int, float]] = {}
    seen: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def look(pid: int) -> None:
            with suppress(psutil.Error):
                for one in psutil.Process(pid).children(recursive=True):
                    with suppress(psutil.Error, OSError):
                        words, cpu = one.cmdline(), one.cpu_times()
                        if "--follow" in words or "wandb-core" in one.name():
                            anon = max(proc_bytes("RssAnon", one.pid), beside.get(one.pid, (0, 0.0))[0])
                            beside[one.pid] = (anon, cpu.user + cpu.system)
                        elif any(word.endswith("core.py") for word in words) and "-S" not in words:
                            path = next(folder.glob("*/*/metrics.csv"), None)
                            row = None if path is None else read_tail(path).row
                            seen.append((0 if row is None else int(row[0]), cpu.user + cpu.system))

        command = [
            sys.executable, ROOT / "experiments.py", "model=32d", "training.effective_batch=8",
            f"runs_dir={folder}", f"training.max_steps={steps}", "training.evals=1",
            "training.eval_tokens=1K", f"training.threads={threads}", "training.device=cpu",
            "memory.refuse=false", "logging.every_s=0.5",
            *([f"logging={to}", "logging.every_steps=1"] if to else []),
        ]  # fmt: skip
        run(command, cwd=folder, env={"WANDB_MODE": "offline"}, look=look, every_s=0.1)
        with open(next(folder.glob("*/*/metrics.csv")), newline="") as file:
            seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
    warm = [(step, cpu_s) for step, cpu_s in seen if step >= warm_up]
    taken = max(1, warm[-1][0] - warm[0][0]) if warm else 1
    return {
        "step_ms": 1000 * (seconds[-1] - seconds[warm_up - 1]) / (len(seconds) - warm_up),
        "step_cpu_ms": 1000 * (warm[-1][1] - warm[0][1]) / taken if warm else 0.0,
        "anon_mb": sum(anon for anon, _ in beside.values()) / 2**20,
        "beside_row_ms": 1000 * sum(cpu_s for _, cpu_s in beside.values()) / steps,
    }


@benchmark(rounds=(3, 1), steps=(500, 60))
def measured(chosen: Any) -> Any:
    threads = max(1, (os.cpu_count() or 1) - 1)
    targets = [to for to in (None, "csv", "tensorboard", "wandb") if not is_missing(to)]
    found = in_turns({str(to): partial(measure, to, chosen.steps, threads) for to in targets}, chosen.rounds)
    cases: list[dict[str, Any]] = []
    for to in targets:
        columns = {key: [one[key] for one in found[str(to)]] for key in found["None"][0]}
        cases.append({"to": to, **{key: summary(values) for key, values in columns.items()}})
        for key in ("step_ms", "step_cpu_ms"):
            bare = [max(one[key], 1e-9) for one in found["None"]]
            cases[-1][key.replace("_ms", "_ratio")] = ratios(columns[key], bare)
    steps = f"{chosen.steps} steps of 1,024 tokens on {threads} core"
    what = f"Runs of 32d over bytes, {steps}, all handed on"
    return {"what": what, "goal": GOAL, "cases": cases}
