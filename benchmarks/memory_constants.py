"""Measure again what memory/constants.py has of a process by itself, with the build of torch that runs this.

Each run is a process of its own (benchmarks/memory_measured.py). A run of a tiny model gives the base. Runs
with loader workers and with memory.attribute=true show what those add. What runs of other sizes hold beyond
the base and their tensors is the allocator's: a fixed part, and a share of what goes through its heap. The
constants in the table are chosen so that no run here is estimated more than 5% too low. On a GPU the
context, cuBLAS's workspaces and what CUDA holds on the host are measured too.

    python benchmarks/memory_constants.py [--save]    # benchmarks/results/memory_constants_BUILD.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save
from benchmarks.memory_measured import VOCAB, measure, run_config
from conf import Config
from memory.estimate import Estimate
from memory.torch_build import torch_build
from training.memory_parts import estimate_run

MB = 1 << 20
WHOLE = {"loss_chunk": 1 << 20}
RUNS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (64, 8, {}),
    (64, 32, {}),
    (64, 32, WHOLE),
    (96, 16, {}),
    (96, 16, WHOLE),
    (96, 64, {}),
    (192, 8, {}),
    (192, 8, WHOLE),
    (192, 32, {}),
    (96, 16, {"effective_batch": 32}),
    (192, 8, {"effective_batch": 24}),
    (64, 32, {"activation_checkpointing": True}),
    (192, 32, {"activation_checkpointing": True}),
    (96, 16, {"precision": "bf16"}),
    (96, 16, {"compile": True}),
    (192, 8, {"compile": True}),
)
STEPS = {"steps": 4, "checkpoint_every": 2}
"""A checkpoint after the second step, so that later ones meet its copy."""

FROM_TABLE = ("python and torch", "allocator", "compiler", "batches")


def tensors_of(estimate: Estimate) -> int:
    """The peak of the model's and the optimizer's tensors alone."""
    parts = [part for part in estimate.parts if part.name not in FROM_TABLE and not part.beside]
    return Estimate.of(parts).own_bytes


def measured_beside(folder: Path, width: int, batch: int, training: dict[str, Any]) -> dict[str, Any]:
    name = folder / f"{width}-{batch}-{len(list(folder.iterdir()))}"
    config = run_config(name, width, batch, **STEPS, **training)
    estimate = estimate_run(config, vocab_size=VOCAB, micro_batch=batch)
    peak = measure(config).peak_bytes
    return {
        "width": width,
        "batch": batch,
        **training,
        "measured_mb": round(peak / MB),
        "tensors_mb": round(tensors_of(estimate) / MB),
        "beyond_tensors_mb": round((peak - tensors_of(estimate)) / MB),
        "table_says_mb": round(estimate.own_bytes / MB),
        "error": round(estimate.own_bytes / peak - 1, 4),
    }


def process_costs(folder: Path) -> dict[str, Any]:
    """Megabytes that do not depend on the size of the model, by the names of memory/constants.py."""
    tiny = measure(run_config(folder / "tiny", 16, 1, vocab=300))
    found = {"FRAMEWORK_BASE": tiny.peak_bytes, "LIBRARIES_MAPPED": tiny.files_bytes}
    plain = run_config(folder / "workers", 64, 8)
    one, two = (measure(_with_workers(plain, count)) for count in (1, 2))
    found["FORKED_WORKER_RSS"] = one.fork_rss_bytes
    found["FORKED_WORKER"] = two.with_forks_bytes - one.with_forks_bytes
    looking = replace(_with_workers(plain, 2), memory=replace(plain.memory, attribute=True))
    found["LOOKED_AT"] = measure(looking).with_forks_bytes - two.with_forks_bytes
    return {name: round(amount / MB) for name, amount in found.items()}


def _with_workers(config: Config, count: int) -> Config:
    runs = f"{config.runs_dir}-{count}-{time.monotonic_ns()}"
    return replace(config, dataset=replace(config.dataset, num_workers=count), runs_dir=runs)


ON_GPU = """
import json, re, subprocess, torch

def anon():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10

def driver_used():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout) << 20

others, host = driver_used(), anon()
weight = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
tensors = torch.cuda.memory_allocated()
context_host = anon() - host
(weight @ weight).sum().backward()
torch.cuda.synchronize()
weight.grad = None
workspaces = torch.cuda.memory_allocated() - tensors
torch.cuda.empty_cache()
free, total = torch.cuda.mem_get_info()
context = total - free - torch.cuda.memory_reserved() - others
found = {"CUDA_CONTEXT": context, "context_on_host": context_host, "CUBLAS_WORKSPACES": workspaces}
print(json.dumps({name: round(amount / (1 << 20)) for name, amount in found.items()}))
"""


def gpu_costs(folder: Path, base_mb: int) -> dict[str, Any]:
    """Megabytes that CUDA takes on the GPU and on the host. Nothing where torch sees no GPU."""
    sees = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    if subprocess.run([sys.executable, "-c", sees]).returncode:
        return {}
    printed = subprocess.run(
        [sys.executable, "-c", ON_GPU], capture_output=True, text=True, check=True
    ).stdout
    whole = measure(run_config(folder / "gpu", 16, 1, vocab=300, device="cuda"))
    compiled = measure(
        run_config(folder / "compiled", 16, 1, vocab=300, device="cuda", compile=True), folder / "compiler"
    )
    triton = compiled.with_forks_bytes - compiled.peak_bytes
    return {
        **json.loads(printed),
        "CUDA_HOST": round(whole.peak_bytes / MB) - base_mb,
        "TRITON_POOL and its workers": round(triton / MB),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help="write the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        costs = process_costs(folder)
        print(torch_build(), costs, flush=True)
        on_gpu = gpu_costs(folder, costs["FRAMEWORK_BASE"])
        print(on_gpu or "no GPU", flush=True)
        rows: list[dict[str, Any]] = []
        for width, batch, training in RUNS:
            rows.append(measured_beside(folder, width, batch, training))
            print(rows[-1], flush=True)
    if options.save:
        result = {"build": torch_build(), "process_mb": costs, "gpu_mb": on_gpu, "runs": rows}
        save(f"memory_constants_{torch_build()}", result)


if __name__ == "__main__":
    main()
