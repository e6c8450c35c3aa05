"""What `logging=csv|tensorboard|wandb` costs a run: its steps, memory and time of the process beside it.

Whole runs of one small model, without and with each logger, take turns. Those whose package is not installed
(`make loggers`) are left out. Each takes every step, also W&B's, whose option takes every tenth.

    python benchmarks/loggers.py [--rounds 3] [--steps 500]
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import psutil

from benchmarks.environment import save, summary
from benchmarks.tokenizing_parts.page import goals, read, section, table
from conf.logging_rules import is_missing
from experiment_utils.metrics_file import read_tail

TARGETS = (None, "csv", "tensorboard", "wandb")
WARM_UP_STEPS = 50
GOAL = 0.01
_LOOK_EVERY_S = 0.1


def run(folder: Path, to: str | None, steps: int, threads: int) -> dict[str, float]:
    """One run to its end: a step's ms by the clock and of the run's own CPU, after some steps; of the
    processes beside it the highest anon and their CPU.
    """
    command = [
        sys.executable, str(ROOT / "experiments.py"), "model=32d", "training.effective_batch=8",
        f"runs_dir={folder}", f"training.max_steps={steps}", "training.evals=1", "training.eval_tokens=1K",
        f"training.threads={threads}", "training.device=cpu", "memory.refuse=false", "logging.every_s=0.5",
        *([f"logging={to}", "logging.every_steps=1"] if to else []),
    ]  # fmt: skip
    environment = {**os.environ, "WANDB_MODE": "offline"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, cwd=folder)
    beside: dict[int, tuple[int, float]] = {}
    seen: list[tuple[int, float]] = []
    while process.poll() is None:
        with suppress(psutil.Error):
            for one in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.Error, OSError):
                    words = one.cmdline()
                    if "--follow" in words or "wandb-core" in one.name():
                        beside[one.pid] = _measured(one, beside.get(one.pid, (0, 0.0)))
                    elif any(word.endswith("core.py") for word in words) and "-S" not in words:
                        seen.append((_step(folder), _measured(one, (0, 0.0))[1]))
        time.sleep(_LOOK_EVERY_S)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    with open(next(folder.glob("*/*/metrics.csv")), newline="") as file:
        seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
    warm = [(step, cpu_s) for step, cpu_s in seen if step >= WARM_UP_STEPS]
    return {
        "step_ms": 1000 * (seconds[-1] - seconds[WARM_UP_STEPS - 1]) / (len(seconds) - WARM_UP_STEPS),
        "step_cpu_ms": 1000 * (warm[-1][1] - warm[0][1]) / (warm[-1][0] - warm[0][0]),
        "anon_mb": sum(anon for anon, _ in beside.values()) / 2**20,
        "cpu_s": sum(cpu_s for _, cpu_s in beside.values()),
    }


def _step(folder: Path) -> int:
    path = next(folder.glob("*/*/metrics.csv"), None)
    row = None if path is None else read_tail(path).row
    return 0 if row is None else int(row[0])


def _measured(process: psutil.Process, before: tuple[int, float]) -> tuple[int, float]:
    times = process.cpu_times()
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    found = [int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")]
    return max([*found, before[0]]), times.user + times.system


def page() -> str:
    """The section of docs/figures.md."""
    found = read("loggers")
    rows = []
    for case in found["cases"]:
        beside = ("", "")
        if case["to"]:
            beside = (f"{case['anon_mb']['median']:.0f}", f"{case['beside_row_ms']['median']:.2f}")
        ratios = [
            f"{ratio['median']:.3f} ({ratio['min']:.3f} to {ratio['max']:.3f})"
            for ratio in (case["step_ratio"], case["step_cpu_ratio"])
        ]
        rows.append((case["to"] or "none", f"{case['step_ms']['median']:.2f}", *ratios, *beside))
    text = (
        f"{found['what']}. The logger is a process of its own, which the steps never wait for. "
        "Its CPU holds its start and its end."
    )
    more = {case["to"]: case["step_ratio"]["median"] - 1 for case in found["cases"] if case["to"]}
    wanted = goals(
        (f"{to}: more of a step, where a core is free", f"{share:+.1%}", f"at most {found['goal']:.0%}",
         share <= found["goal"])
        for to, share in more.items()
    )  # fmt: skip
    header = (
        "`logging=`", "ms a step", "/ without, same round", "CPU of a step / without", "anon beside, MB",
        "CPU beside, ms a row",
    )  # fmt: skip
    return section(
        "What a logger beside a run costs", "loggers", found, text, f"{table(header, rows)}\n\n{wanted}"
    )


def measure(steps: int, rounds: int, threads: int) -> list[dict[str, Any]]:
    """A case for each logger; ratios are within a round."""
    targets = [to for to in TARGETS if not is_missing(to)]
    found: dict[str | None, list[dict[str, float]]] = {to: [] for to in targets}
    for number in range(rounds):
        for to in targets if number % 2 == 0 else targets[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                found[to].append(run(Path(folder), to, steps, threads))
            print(to, found[to][-1], file=sys.stderr, flush=True)
    cases = []
    for to, runs in found.items():
        told = {name: summary([one[name] for one in runs]) for name in ("step_ms", "step_cpu_ms", "anon_mb")}
        ratios = {
            f"{name.removesuffix('_ms')}_ratio": summary(
                [one[name] / bare[name] for one, bare in zip(runs, found[None], strict=True)]
            )
            for name in ("step_ms", "step_cpu_ms")
        }
        row_ms = summary([1000 * one["cpu_s"] / steps for one in runs])
        cases.append({"to": to, **told, **ratios, "beside_row_ms": row_ms})
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    threads = max(1, (os.cpu_count() or 1) - 1)
    what = f"Runs of 32d over bytes, {options.steps} steps of 1,024 tokens on {threads} core, all handed on"
    cases = measure(options.steps, options.rounds, threads)
    save("loggers", {"what": what, "goal": GOAL, "cases": cases})


if __name__ == "__main__":
    main()
