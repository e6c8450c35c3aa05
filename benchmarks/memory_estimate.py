"""What was told of a run's memory beforehand, against what it held: sizes that calibrated nothing.

Each row is a run of `core.py` in a process of its own: four steps on computed tokens with a vocabulary of
50,257, or of the 257 of bytes, an evaluation, and a checkpoint after the second, whose copy the others meet.
Of few tokens at once the allocator makes a run's peak a matter of chance: the most of several runs counts,
and the least stands beside it. Of an ensemble all runs are in that process.
Measured is the peak of its own anon and shmem (RssAnon + RssShmem every 3 ms, and VmHWM less mapped files).
The build of torch is the one that runs this; results of the CUDA build are saved under a name of their own.
Of a compiled run the C++ compilers that it starts count as well: once with torch.compile's cache empty, as on
a new node (cold), and once with what that run left in it (warm).
Goals: eager within 15% and never more than 5% below, compiled within 25%.

    python benchmarks/memory_estimate.py [--widths 32 128 256] [--compiled] [--save]    # half an hour
    python benchmarks/memory_estimate.py --compiled --save --go-on                      # what was cut short
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save
from benchmarks.memory_measured import VOCAB, measure, run_config, with_arch, with_members
from conf import Config
from experiment_utils import atomic_files
from memory import constants
from memory.torch_build import CPU, torch_build
from training.memory_parts import estimate_run

MB = 1 << 20
NAME = "memory_estimate" if torch_build() == CPU else f"memory_estimate_{torch_build()}"
KEPT = ROOT / "benchmarks" / f".{NAME}.json"
BATCHES = {32: (8, 32), 128: (8, 32), 256: (4, 16)}
LOSSES: dict[str, dict[str, Any]] = {"chunked": {}, "plain": {"loss_chunk": 1 << 20}, "whole": {}}
"""What a run sets. whole: no more tokens than a chunk, so nothing is set."""
EAGER, BELOW, COMPILED = 0.15, 0.05, 0.25
STEPS = {"steps": 4, "checkpoint_every": 2}

CHECKPOINTED = ((128, 8), (160, 16), (256, 8))
"""Width and micro-batch of runs whose blocks are computed again in the backward pass, 8 to 16 of them."""

BYTES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (32, 4, {"seq_len": 256, "effective_batch": 64}),
    (48, 8, {"effective_batch": 64}),
    (64, 32, {"seq_len": 256}),
    (128, 2, {"seq_len": 256, "effective_batch": 32}),
)
"""Width, micro-batch and more of runs with a vocabulary of bytes, whose tensors are small."""

LSTM = {"name": "lstm", "family": "lstm", "norm": "layer", "bias": "linear", "init": "xavier"}
LSTMS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (96, 16, {}),
    (192, 16, {"effective_batch": 32}),
)
"""Width, micro-batch and more of layers of an LSTM, whose kernel brings its own room."""

ENSEMBLES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (32, 4, {"members": 8, "vocab": 257}),
    (48, 16, {"members": 4, "vocab": 257, "effective_batch": 32}),
    (96, 8, {"members": 3, "vocab": 257}),
    (32, 4, {"members": 4}),
    (64, 8, {"members": 2}),
)
"""Width, micro-batch, runs in one process and more of ensembles."""

ENSEMBLE_RUNS = 2

FEW_TOKENS_RUNS = 4
FEW_TOKENS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (48, 1, {}),
    (96, 1, {}),
    (128, 1, {}),
    (112, 1, {"effective_batch": 4}),
    (128, 1, {"seq_len": 64}),
    (160, 1, {}),
    (192, 1, {}),
    (256, 1, {}),
)
"""The same of runs with so few tokens at once that logits and the head's gradient come from the heap."""


def row(
    folder: Path,
    width: int,
    batch: int,
    loss: str,
    vocab: int = VOCAB,
    runs: int = 1,
    arch: dict[str, Any] | None = None,
    members: int = 1,
    **training: Any,
) -> dict[str, Any]:
    """A configuration, told and measured: the most of so many runs, and the least.

    members: of an ensemble.
    """
    peaks = []
    for _ in range(runs):
        config = with_arch(_config(folder, width, batch, loss, vocab, training), **(arch or {}))
        peaks.append(measure(with_members(config, members) if members > 1 else config).peak_bytes)
    told = estimate_run(config, vocab_size=vocab, micro_batch=batch, together=members).own_bytes
    spread: dict[str, Any] = {"least_measured_mb": round(min(peaks) / MB)} if runs > 1 else {}
    spread |= {"arch": arch["name"]} if arch else {}
    spread |= {"members": members} if members > 1 else {}
    return _result(width, batch, loss, vocab, training | spread, told, max(peaks))


def compiled_rows(folder: Path, width: int, batch: int, loss: str) -> list[dict[str, Any]]:
    """The same of a compiled run and its compilers: with an empty cache, and then with a full one."""
    rows, cache = [], folder / f"compiler-{time.monotonic_ns()}"
    for state in ("cold", "warm"):
        config = _config(folder, width, batch, loss, VOCAB, {"compile": True})
        peak = measure(config, cache).job_bytes
        estimate = estimate_run(config, vocab_size=VOCAB, micro_batch=batch)
        told = estimate.host_bytes if state == "cold" else estimate.warm_bytes
        facts = {"compile": True, "compiler_cache": state}
        rows.append(_result(width, batch, loss, VOCAB, facts, told - constants.ENTRY.in_bytes, peak))
    return rows


def _config(folder: Path, width: int, batch: int, loss: str, vocab: int, training: dict[str, Any]) -> Config:
    name = folder / f"{time.monotonic_ns()}"
    return run_config(name, width, batch, vocab=vocab, **LOSSES[loss], **STEPS, **training)


def _result(
    width: int, batch: int, loss: str, vocab: int, facts: dict[str, Any], told_bytes: int, peak_bytes: int
) -> dict[str, Any]:
    error = told_bytes / peak_bytes - 1
    is_compiled = facts.get("compile", False)
    within = abs(error) <= (COMPILED if is_compiled else EAGER) and (is_compiled or error >= -BELOW)
    result = {
        "model": f"{width}d",
        "micro_batch": batch,
        "loss": loss,
        **({} if vocab == VOCAB else {"vocabulary": vocab}),
        **facts,
        "told_mb": round(told_bytes / MB),
        "measured_mb": round(peak_bytes / MB),
        "error": round(error, 4),
        "within_goal": within,
    }
    print(result, flush=True)
    return result


def seconds_of_plan(runs: int = 100) -> float:
    """Of `plan` for a sweep of so many, from the command to its table."""
    rates = ",".join(f"{1e-4 * (1 + n):.4g}" for n in range(runs))
    command = [
        sys.executable, str(ROOT / "experiments.py"), "-m", f"optimizer.lr={rates}", "plan=true",
        f"dataset.path=synthetic:uniform:{VOCAB}:10M:0", "tokenizer=ids", "training.max_steps=10",
    ]  # fmt: skip
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


Case = Callable[[Path], list[dict[str, Any]]]


def cases(widths: Sequence[int], *, compiled: bool) -> dict[str, Case]:
    """What is measured, by a name of its own."""
    found: dict[str, Case] = {}

    def add(width: int, batch: int, loss: str, **more: Any) -> None:
        name = " ".join([f"{width}d", str(batch), loss, *(f"{key}={value}" for key, value in more.items())])
        if more.pop("compile", False):
            found[name] = lambda folder: compiled_rows(folder, width, batch, loss)
        else:
            found[name] = lambda folder: [row(folder, width, batch, loss, **more)]

    sizes = [(width, batch) for width in widths for batch in BATCHES[width]]
    for loss in ("chunked", "plain"):
        for size in sizes:
            add(*size, loss)
    for size in sizes if compiled else ():
        add(*size, "chunked", compile=True)
    for width, batch in CHECKPOINTED:
        add(width, batch, "chunked", activation_checkpointing=True)
    add(128, 8, "chunked", effective_batch=32)
    for width, batch, more in BYTES:
        add(width, batch, "chunked", vocab=257, **more)
    for width, batch, more in LSTMS:
        add(width, batch, "chunked", arch=LSTM, **more)
    for width, batch, more in ENSEMBLES:
        add(width, batch, "chunked", runs=ENSEMBLE_RUNS, **more)
    for width, batch, more in FEW_TOKENS:
        add(width, batch, "whole", runs=FEW_TOKENS_RUNS, **more)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--compiled", action="store_true", help="also with torch.compile: minutes")
    parser.add_argument("--save", action="store_true", help=f"write benchmarks/results/{NAME}.json")
    parser.add_argument("--go-on", action="store_true", help="measure what a start that was ended has not")
    options = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if options.go_on and KEPT.exists() else {}
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name, case in cases(options.widths, compiled=options.compiled).items():
            if name not in kept:
                kept[name] = case(Path(place))
                atomic_files.write_json(KEPT, kept)
            rows += kept[name]
    plan_s = round(seconds_of_plan(), 2)
    print(f"plan of 100 runs: {plan_s} s")
    if options.save:
        goals = {"eager": EAGER, "below": BELOW, "compiled": COMPILED}
        save(NAME, {"build": torch_build(), "runs": rows, "goals": goals, "plan_of_100_runs_s": plan_s})
    KEPT.unlink()


if __name__ == "__main__":
    main()
