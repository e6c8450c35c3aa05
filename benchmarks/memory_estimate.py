"""Compare the estimate of a run's memory with what it then holds, for sizes that no constant was measured on.

Each row is a run of `core.py`: four steps on computed tokens with a vocabulary of 50,257, or 257, an
evaluation, and a checkpoint after the second step, whose copy the others meet. With few tokens the peak is
a matter of chance of the allocator: the highest of several runs counts, and the lowest is shown. A compiled
run is measured with its C++ compilers, with torch.compile's cache empty (cold) and then with what that run
left (warm). Results of the CUDA build of torch are saved under a name of their own.

    python benchmarks/memory_estimate.py [--compiled]    # half an hour
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import MB, ROOT, benchmark
from benchmarks.memory_measured import VOCAB, measure, run_config, with_arch, with_members
from benchmarks.processes import seconds_of
from memory.estimate import constants
from memory.estimate.torch_build import CPU, torch_build
from training.plan.memory_parts import estimate_run

NAME = "memory_estimate" if torch_build() == CPU else f"memory_estimate_{torch_build()}"
GOALS = {"eager": 0.15, "below": 0.05, "compiled": 0.25}
BATCHES = {32: (8, 32), 128: (8, 32), 256: (4, 16)}
LOSSES: dict[str, dict[str, Any]] = {"chunked": {}, "plain": {"loss_chunk": 1 << 20}, "whole": {}}
"""Overrides by loss. whole: a run has no more tokens than a chunk, so nothing is set."""
LSTM = {"name": "lstm", "family": "lstm", "norm": "layer", "bias": "linear", "init": "xavier"}
BYTES: dict[str, Any] = {"vocab": 257}
Case = tuple[int, int, str, dict[str, Any]]
CASES: list[Case] = [
    *((width, 8 if width != 160 else 16, "chunked", {"activation_checkpointing": True})
      for width in (128, 160, 256)),
    (128, 8, "chunked", {"effective_batch": 32}),
    (32, 4, "chunked", {**BYTES, "seq_len": 256, "effective_batch": 64}),
    (48, 8, "chunked", {**BYTES, "effective_batch": 64}),
    (64, 32, "chunked", {**BYTES, "seq_len": 256}),
    (128, 2, "chunked", {**BYTES, "seq_len": 256, "effective_batch": 32}),
    (96, 16, "chunked", {"arch": LSTM}),
    (192, 16, "chunked", {"arch": LSTM, "effective_batch": 32}),
    (32, 4, "chunked", {"runs": 2, "members": 8, **BYTES}),
    (48, 16, "chunked", {"runs": 2, "members": 4, **BYTES, "effective_batch": 32}),
    (96, 8, "chunked", {"runs": 2, "members": 3, **BYTES}),
    (32, 4, "chunked", {"runs": 2, "members": 4}),
    (64, 8, "chunked", {"runs": 2, "members": 2}),
    (112, 1, "whole", {"runs": 4, "effective_batch": 4}),
    (128, 1, "whole", {"runs": 4, "seq_len": 64}),
    *((width, 1, "whole", {"runs": 4}) for width in (48, 96, 128, 160, 192, 256)),
]  # fmt: skip
"""Width, micro-batch, loss and more: checkpointed, accumulated, bytes, LSTMs, ensembles, few tokens."""


def rows(
    folder: Path,
    width: int,
    batch: int,
    loss: str,
    *,
    vocab: int = VOCAB,
    runs: int = 1,
    members: int = 1,
    arch: dict[str, Any] | None = None,
    compile: bool = False,
    **training: Any,
) -> list[dict[str, Any]]:
    """A configuration, estimated and measured: a row, or two of a compiled run."""  # fmt: skip
    found = []
    cache = folder / f"compiler-{time.monotonic_ns()}" if compile else None
    for state in ("cold", "warm") if compile else ("",):
        peaks = []
        for _ in range(runs):
            more = {**LOSSES[loss], "steps": 4, "checkpoint_every": 2, "compile": compile, **training}
            place = Path(tempfile.mkdtemp(dir=folder))
            config = with_arch(run_config(place, width, batch, vocab=vocab, **more), **(arch or {}))
            measured = measure(with_members(config, members) if members > 1 else config, cache)
            peaks.append(measured.job_bytes if compile else measured.peak_bytes)
        estimate = estimate_run(config, vocab_size=vocab, micro_batch=batch, together=members)
        estimated = {"": estimate.own_bytes, "cold": estimate.host_bytes, "warm": estimate.warm_bytes}[state]
        estimated -= constants.ENTRY.in_bytes if compile else 0
        error, peak = estimated / max(peaks) - 1, max(peaks)
        most = GOALS["compiled"] if compile else GOALS["eager"]
        facts: dict[str, Any] = {
            "vocabulary": vocab if vocab != VOCAB else None, "compile": compile, "compiler_cache": state,
            "least_measured_mb": round(min(peaks) / MB) if runs > 1 else 0, "arch": (arch or {}).get("name"),
            "members": members if members > 1 else 0, **training,
        }  # fmt: skip
        found.append({
            "model": f"{width}d", "micro_batch": batch, "loss": loss,
            **{key: value for key, value in facts.items() if value},
            "told_mb": round(estimated / MB), "measured_mb": round(peak / MB), "error": round(error, 4),
            "within_goal": abs(error) <= most and (compile or error >= -GOALS["below"]),
        })  # fmt: skip
        print(found[-1], file=sys.stderr, flush=True)
    return found


def seconds_of_plan(runs: int = 100) -> float:
    """Seconds of `plan` for a sweep, from the command to its table."""
    rates = ",".join(f"{1e-4 * (1 + n):.4g}" for n in range(runs))
    data = [f"dataset.path=synthetic:uniform:{VOCAB}:10M:0", "tokenizer=ids", "training.max_steps=10"]
    words = ["-m", f"optimizer.lr={rates}", "plan=true", *data]
    return seconds_of([sys.executable, ROOT / "experiments.py", *words])


@benchmark(NAME, widths=(list(BATCHES), [32]), cases=(len(CASES), 0), compiled=bool)
def measured(chosen: Any) -> Any:
    sizes = [(width, batch) for width in chosen.widths for batch in BATCHES[width]]
    cases: list[Case] = [(*size, loss, {}) for loss in ("chunked", "plain") for size in sizes]
    if chosen.quick:
        cases = [(16, 1, "whole", {"vocab": 300})]
    if chosen.compiled:
        cases += [(*size, "chunked", {"compile": True}) for size in sizes]
    with tempfile.TemporaryDirectory() as place:
        found = [
            row
            for width, batch, loss, more in cases + CASES[: chosen.cases]
            for row in rows(Path(place), width, batch, loss, **more)
        ]
    plan_s = round(seconds_of_plan(3 if chosen.quick else 100), 2)
    facts = {"build": torch_build(), "goals": GOALS, "plan_of_100_runs_s": plan_s}
    return facts | {"runs": found}
