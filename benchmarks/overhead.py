"""Measure the time that a run spends outside its steps, and how long a step waits for its batch.

Two cases, a step that is long and one that is short: 64d with a vocabulary of GPT-2's size, 32d with bytes.
Two measurements of each, in turns: - timers inside the loop of an ordinary run (`run.json`,
attempts[].seconds): all time of the train stages, less
  the time inside `Step.take`; of that, the time until the loader gave a batch;
- an A/B against a bare loop of the same model, optimizer, loss and data, with the interval of the ratio.

    python benchmarks/overhead.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import benchmark, in_turns, ratios, summary
from benchmarks.planned_run import core_command, on_cpu, planned_run, run_facts
from benchmarks.processes import run
from training.devices.device import available_threads

SEQ_LEN, BATCH = 128, 8
CASES = {"64d, GPT-2 vocabulary": (64, 50_257, 0.005), "32d, bytes": (32, 257, 0.03)}
"""Width, vocabulary, and the largest share of a step that the time outside of it may have."""
BARE = """
import sys, time
import numpy as np, torch
from conf.schema import Arch, Model, Optimizer
from models import build_model, resolve_loss_chunk
from models import lm_loss
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
"""For the threads of both: OpenMP's default, which a run chooses on free cores."""


def measure(name: str, steps: int, rounds: int) -> dict[str, Any]:
    """The row of a case."""
    width, vocabulary, goal = CASES[name]
    threads = available_threads()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        how = on_cpu(folder, vocabulary, steps, BATCH, SEQ_LEN) | {
            "model": f"{width}d", "training__checkpoint_every": 10**6, "training__threads": threads,
            "memory__every_steps": 10,
        }  # fmt: skip

        def harness() -> dict[str, float]:
            planned = planned_run(folder, **how)
            run(core_command(planned), env=WAITING)
            seconds = run_facts(planned)
            outside = seconds["train"] + seconds["first_step"] - seconds["step"]
            return {
                "outside": outside / seconds["step"], "waiting": seconds["batch"] / seconds["step"],
                "step_s": seconds["train"] / (steps - 1),
            }  # fmt: skip

        def bare() -> dict[str, float]:
            sizes = (how["dataset__path"], width, steps, SEQ_LEN, BATCH, vocabulary, threads)
            return {"step_s": run([sys.executable, "-c", BARE, *sizes], env=WAITING).json}

        found = in_turns({"harness": harness, "bare": bare}, rounds)
    over = ratios(*([one["step_s"] for one in found[which]] for which in ("harness", "bare")))
    pairs = [a["step_s"] / b["step_s"] for a, b in zip(found["harness"], found["bare"], strict=True)]
    mean = sum(pairs) / rounds
    deviation = (sum((ratio - mean) ** 2 for ratio in pairs) / max(1, rounds - 1)) ** 0.5
    half_width = 2.776 * deviation / rounds**0.5  # Student's t for 5 rounds, 95%
    interval = [round(mean - half_width, 4), round(mean + half_width, 4)]
    return {
        "case": name, "steps": steps, "goal": goal,
        "outside_the_step_share": summary([one["outside"] for one in found["harness"]]),
        "waiting_for_batches_share": summary([one["waiting"] for one in found["harness"]]),
        "harness_over_bare_loop": over | {"mean": round(mean, 4), "interval_95": interval},
    }  # fmt: skip


@benchmark(rounds=(5, 1), steps=([40, 800], [3, 10]))
def measured(chosen: Any) -> Any:
    what = f"batch {BATCH} x {SEQ_LEN}, {available_threads()} threads, stage records on"
    cases = [measure(name, steps, chosen.rounds) for name, steps in zip(CASES, chosen.steps, strict=True)]
    return {"what": what, "cases": cases}
