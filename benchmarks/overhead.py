"""Harness overhead: time outside the step, as a share of the step; and how long a step waits for its batch.

Two cases, a step that is long and one that is short: 64d with a vocabulary of GPT-2's size, 32d with bytes.
Of each, two measurements in one run, interleaved:
- timers inside the loop of an ordinary run (`run.json`, attempts[].seconds): all time of the train stages,
  stage records and rows of metrics.csv on, less the time inside `Step.take`; of that, the time until the
  loader gave a batch;
- an A/B against a bare loop of the same model, optimizer, loss and data, with the interval of the ratio over
  the rounds.

    python benchmarks/overhead.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save, summary
from benchmarks.training_parts.planned_run import planned_run, write_ids, write_tokenizer
from training.attempt.run_files import read_run
from training.device import available_threads

SEQ_LEN = 128
BATCH = 8


@dataclass(frozen=True)
class Case:
    """goal: share of a step that lies outside of it, at most."""

    width: int
    vocabulary: int
    steps: int
    goal: float

    @property
    def name(self) -> str:
        return f"{self.width}d, {'bytes' if self.vocabulary == 257 else 'GPT-2 vocabulary'}"


CASES = (Case(64, 50_257, 40, 0.005), Case(32, 257, 800, 0.03))

BARE = """
import sys, time
import numpy as np, torch
from conf.schema import Arch, Model, Optimizer
from models import build_model, lm_loss, resolve_loss_chunk
from training.optimizers import build_optimizer
path, width, steps, seq_len, batch, vocabulary, threads = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
torch.manual_seed(0)
tokens = torch.from_numpy(np.load(path).astype(np.int64))
model = build_model(Model(name=f"{width}d", d_model=width), Arch(), vocabulary, seq_len)
optimizer = build_optimizer(model, Optimizer(), "cpu")
chunk = resolve_loss_chunk("auto", vocabulary, "cpu")
seconds = []
for step in range(steps):
    started = time.monotonic()
    starts = range(step * batch * seq_len, (step + 1) * batch * seq_len, seq_len)
    inputs = torch.stack([tokens[s : s + seq_len] for s in starts])
    labels = torch.stack([tokens[s + 1 : s + 1 + seq_len] for s in starts])
    loss = lm_loss(model.hidden(inputs), model.output_weight, labels, chunk=chunk)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    seconds.append(time.monotonic() - started)
print(sum(seconds[1:]) / (steps - 1))
"""


WAITING = {"GOMP_SPINCOUNT": "300000"}
"""Of the threads of both: what a run chooses on free cores, which is OpenMP's own."""


def harness(case: Case, folder: Path, path: Path, threads: int) -> dict[str, float]:
    """Seconds of one run by its own timers."""
    run = planned_run(
        f"model={case.width}d", "dataset=text", f"dataset.path={path}", *_tokenizer(case, folder),
        f"training.max_steps={case.steps}", f"training.seq_len={SEQ_LEN}",
        f"training.effective_batch={BATCH}", "training.evals=1", f"training.eval_tokens={SEQ_LEN}",
        "training.checkpoint_every=1000000",
        "training.device=cpu", "training.precision=fp32", f"training.threads={threads}",
        "memory.every_steps=10", f"runs_dir={tempfile.mkdtemp(dir=folder)}",
    )  # fmt: skip
    command = [sys.executable, str(ROOT / "core.py"), str(run), "--quiet"]
    subprocess.run(command, env=os.environ | WAITING, check=True)
    seconds = read_run(run)["attempts"][0]["seconds"]
    in_stages = seconds["train"] + seconds["first_step"]
    return {
        "outside": (in_stages - seconds["step"]) / seconds["step"],
        "waiting": seconds["batch"] / seconds["step"],
        "per_step": seconds["train"] / (case.steps - 1),
    }


def _tokenizer(case: Case, folder: Path) -> list[str]:
    if case.vocabulary == 257:
        return ["tokenizer=bytes"]
    words = folder / "words"
    if not words.exists():
        write_tokenizer(words, case.vocabulary)
    return ["tokenizer=custom", f"tokenizer.path={words}"]


def bare(case: Case, path: Path, threads: int) -> float:
    """Seconds a step of the bare loop."""
    sizes = (case.width, case.steps, SEQ_LEN, BATCH, case.vocabulary, threads)
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(path), *map(str, sizes)],
        cwd=ROOT, env=os.environ | WAITING, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return float(done.stdout)


def measure(case: Case, rounds: int, threads: int) -> dict[str, Any]:
    """The row of a case."""
    outside, waiting, ratios = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write_ids(folder / "random.npy", 4 * case.steps * BATCH * SEQ_LEN, case.vocabulary)
        for round_ in range(rounds):
            order = ["harness", "bare"]
            random.Random(round_).shuffle(order)
            found: dict[str, float] = {}
            for which in order:
                if which == "harness":
                    timers = harness(case, folder, path, threads)
                    outside.append(timers["outside"])
                    waiting.append(timers["waiting"])
                    found[which] = timers["per_step"]
                else:
                    found[which] = bare(case, path, threads)
            ratios.append(found["harness"] / found["bare"])
            time.sleep(0.5)
    mean, deviation = statistics.mean(ratios), statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    half_width = 2.776 * deviation / len(ratios) ** 0.5  # Student's t for 5 rounds, 95%
    return {
        "case": case.name,
        "steps": case.steps,
        "outside_the_step_share": summary(outside),
        "goal": case.goal,
        "met": statistics.median(outside) <= case.goal,
        "waiting_for_batches_share": summary(waiting),
        "harness_over_bare_loop": summary(ratios)
        | {
            "mean": round(mean, 4),
            "interval_95": [round(mean - half_width, 4), round(mean + half_width, 4)],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    threads = available_threads()
    what = f"batch {BATCH} x {SEQ_LEN}, {threads} threads, stage records on"
    save("overhead", {"what": what, "cases": [measure(case, options.rounds, threads) for case in CASES]})


if __name__ == "__main__":
    main()
