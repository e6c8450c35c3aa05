"""The loader and a whole run under a limit of memory smaller than the set: with the limit against without.

A set of 2 GB, its page cache dropped before each (pages that were charged elsewhere would escape the
limit). The loader alone reads 2,000 batches under 300 MB; a run of 32d trains under 700 MB. Needs root and
a cgroup of memory; without them it says so and measures nothing.

    python benchmarks/loading_limits.py      # 10 minutes
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary
from benchmarks.loading_parts.files import drop, write_tokens
from benchmarks.loading_parts.limited import CannotLimit, limited
from benchmarks.loading_peers.peer import Job

LOADER_LIMIT_BYTES, RUN_LIMIT_BYTES = 300 << 20, 700 << 20
READERS = ("auto", "mmap", "pread")
"""The goal is of auto, which a user gets."""
GOAL = 1.1
BYTES = 257
"""Ids of the tokenizer that the run names."""
_TENTHS = 10
_LIMIT_S = 900


def main() -> int:
    options = parser().parse_args()
    folder = options.folder.resolve() / f"limits-{options.tokens}"
    path = folder / "tokens.npy"
    write_tokens(path, 1 << options.tokens, BYTES)
    try:
        with limited(LOADER_LIMIT_BYTES):
            pass
    except CannotLimit as error:
        print(f"skipped, and the saved result left as it is: {error}", file=sys.stderr)
        return 0
    _check_once(path)
    alone = {reader: loader_alone(options, folder, reader) for reader in READERS}
    whole = whole_run(options, folder)
    ratios = [row["limit_over_without"]["median"] for row in (alone["auto"], whole)]
    save(
        "loading_limits",
        {
            "provisional": options.provisional,
            "tokens": 1 << options.tokens,
            "loader_limit_bytes": LOADER_LIMIT_BYTES,
            "run_limit_bytes": RUN_LIMIT_BYTES,
            "batches": options.batches,
            "loader": alone,
            "run": whole,
            "goal": GOAL,
            "met": max(ratios) <= GOAL,
            "met_throughout_the_run": max(whole["tenths_limit_over_without"]) <= GOAL,
        },
    )
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--folder", type=Path, default=ROOT / "benchmarks" / ".loading", metavar="FOLDER")
    made.add_argument("--tokens", type=int, default=30, metavar="N", help="2**N tokens (30: 2 GB)")
    made.add_argument("--batches", type=int, default=2000, help="of the loader alone")
    made.add_argument("--steps", type=int, default=500, help="of the whole run")
    made.add_argument("--rounds", type=int, default=3, help="of the loader alone")
    made.add_argument("--run-rounds", type=int, default=6, help="of the whole run")
    made.add_argument("--provisional", action="store_true", help="say so in the result: the machine was busy")
    return made


def loader_alone(options: argparse.Namespace, folder: Path, reader: str) -> dict[str, Any]:
    """Seconds for the first batches from a cold cache."""
    script = ROOT / "benchmarks" / "loading_peers" / "ours.py"
    job = Job(1024, 32, warm_up=1, batches=options.batches, batches_at_least=options.batches)
    text = json.dumps(asdict(job) | {"options": {"reader": reader}})
    taken: dict[str, list[float]] = {"limit": [], "without": []}
    for number in range(options.rounds):
        for name, limit in _cases(LOADER_LIMIT_BYTES, number):
            drop(folder)
            with limited(limit) as before:
                done = _run([*before, sys.executable, script, "measure", folder, text])
            taken[name].append(json.loads(done.splitlines()[-1])["seconds"])
    return _row(taken)


def whole_run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Seconds in training steps, in all and of each tenth of the run."""
    taken: dict[str, list[float]] = {"limit": [], "without": []}
    tenths: dict[str, list[list[float]]] = {"limit": [], "without": []}
    for number in range(options.run_rounds):
        for name, limit in _cases(RUN_LIMIT_BYTES, number):
            drop(folder)
            seconds = _train(options.steps, folder, limit)
            taken[name].append(seconds[-1])
            size = max(len(seconds) // _TENTHS, 1)
            ends = [0.0, *seconds[size - 1 :: size]]
            tenths[name].append([b - a for a, b in itertools.pairwise(ends)])
    return {
        **_row(taken),
        "steps": options.steps,
        "tenths_s": {name: _rounded(runs) for name, runs in tenths.items()},
        "tenths_limit_over_without": _least_over_least(tenths["limit"], tenths["without"]),
    }


def _least_over_least(limit: list[list[float]], without: list[list[float]]) -> list[float]:
    """Of each tenth. A tenth lasts some seconds, and others on the machine can only make it longer: the
    shortest of the rounds is the nearest to what it takes.
    """
    least = [[min(tenth) for tenth in zip(*runs, strict=True)] for runs in (limit, without)]
    return [round(one / other, 3) for one, other in zip(*least, strict=True)]


def _rounded(runs: list[list[float]]) -> list[list[float]]:
    return [[round(seconds, 3) for seconds in run] for run in runs]


def _train(steps: int, folder: Path, limit: int | None) -> list[float]:
    """The clock of training steps after each step."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as runs:
        command = [
            sys.executable, ROOT / "experiments.py", "model=32d", "dataset=text", "tokenizer=bytes",
            f"dataset.path={folder / 'tokens.npy'}", f"training.max_steps={steps}", "training.evals=1",
            "training.eval_tokens=10000", f"runs_dir={runs}",
        ]  # fmt: skip
        with limited(limit) as before:
            _run([*before, *command])
        found = next(Path(runs).rglob("metrics.csv"))
        with open(found, newline="") as file:
            return [float(row["seconds"]) for row in csv.DictReader(file)]


def _cases(limit: int, number: int) -> list[tuple[str, int | None]]:
    """With and without, in an order that changes from round to round."""
    cases: list[tuple[str, int | None]] = [("limit", limit), ("without", None)]
    return cases if number % 2 == 0 else cases[::-1]


def _row(taken: dict[str, list[float]]) -> dict[str, Any]:
    ratios = [one / other for one, other in zip(taken["limit"], taken["without"], strict=True)]
    return {
        **{f"{name}_s": summary(values) for name, values in taken.items()},
        "limit_over_without": summary(ratios),
    }


def _run(command: list[Any]) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode:
        sys.exit(f"error: exited with {done.returncode} (137: killed for its memory)\n{done.stderr[-2000:]}")
    return done.stdout


def _check_once(path: Path) -> None:
    """A lone file is read once before its first use: not under the limit."""
    _train(1, path.parent, None)


if __name__ == "__main__":
    sys.exit(main())
