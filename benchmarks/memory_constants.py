"""Measure the constants of a process in memory/estimate/constants.py with the build of torch that runs this.

A run of a tiny model gives the base. Runs of other sizes hold more beyond their tensors, which belongs to the
allocator: a fixed part, and a share of what goes through its heap. The constants in the table are chosen so
that no run here is estimated more than 5% too low. On a GPU the context, cuBLAS's workspaces and what CUDA
holds on the host are measured too.

    python benchmarks/memory_constants.py    # benchmarks/results/memory_constants_BUILD.json
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.harness import MB, benchmark
from benchmarks.memory_measured import VOCAB, measure, run_config
from benchmarks.processes import run
from memory.estimate.estimate import Estimate
from memory.estimate.torch_build import torch_build
from training.plan.memory_parts import estimate_run

WHOLE = {"loss_chunk": 1 << 20}
RUNS: list[tuple[int, int, dict[str, Any]]] = [
    *((width, batch, how) for width, batch in ((64, 32), (96, 16), (192, 8)) for how in ({}, WHOLE)),
    (64, 8, {}), (96, 64, {}), (192, 32, {}),
    (96, 16, {"effective_batch": 32}), (192, 8, {"effective_batch": 24}),
    (64, 32, {"activation_checkpointing": True}), (192, 32, {"activation_checkpointing": True}),
    (96, 16, {"precision": "bf16"}), (96, 16, {"compile": True}), (192, 8, {"compile": True}),
]  # fmt: skip
FROM_TABLE = ("python and torch", "allocator", "compiler", "batches")
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


def row(folder: Path, width: int, batch: int, training: dict[str, Any]) -> dict[str, Any]:
    """A run, measured next to its tensors and to what the table estimates."""
    place = Path(tempfile.mkdtemp(dir=folder))
    # A checkpoint after the second step, so that later ones meet its copy.
    config = run_config(place, width, batch, steps=4, checkpoint_every=2, **training)
    estimate = estimate_run(config, vocab_size=VOCAB, micro_batch=batch)
    parts = [part for part in estimate.parts if part.name not in FROM_TABLE and not part.in_other_process]
    tensors, peak = Estimate.of(parts).own_bytes, measure(config).peak_bytes
    found = {
        "width": width, "batch": batch, **training, "measured_mb": round(peak / MB),
        "tensors_mb": round(tensors / MB), "beyond_tensors_mb": round((peak - tensors) / MB),
        "table_says_mb": round(estimate.own_bytes / MB), "error": round(estimate.own_bytes / peak - 1, 4),
    }  # fmt: skip
    print(found, file=sys.stderr, flush=True)
    return found


def process_costs(folder: Path) -> dict[str, int]:
    """Megabytes that do not depend on the size of the model, by the names of memory/estimate/constants.py."""
    tiny = measure(run_config(folder / "tiny", 16, 1, vocab=300))
    found = {
        "FRAMEWORK_BASE": tiny.peak_bytes,
        "LIBRARIES_MAPPED": tiny.files_bytes,
    }
    return {name: round(amount / MB) for name, amount in found.items()}


def gpu_costs(folder: Path, base_mb: int) -> dict[str, Any]:
    """Megabytes that CUDA takes on the GPU and on the host; empty if torch sees no GPU."""
    sees = "import torch; print(int(torch.cuda.is_available()))"
    if not run([sys.executable, "-c", sees], errors=False).json:
        return {}
    tiny = {"vocab": 300, "device": "cuda"}
    whole = measure(run_config(folder / "gpu", 16, 1, **tiny))
    compiled = measure(run_config(folder / "compiled", 16, 1, **tiny, compile=True), folder / "compiler")
    return {
        **run([sys.executable, "-c", ON_GPU], errors=False).json,
        "CUDA_HOST": round(whole.peak_bytes / MB) - base_mb,
        "TRITON_POOL and its workers": round((compiled.with_forks_bytes - compiled.peak_bytes) / MB),
    }


@benchmark(f"memory_constants_{torch_build()}", cases=(len(RUNS), 1))
def measured(chosen: Any) -> Any:
    with tempfile.TemporaryDirectory() as place:
        costs = process_costs(Path(place))
        on_gpu = gpu_costs(Path(place), costs["FRAMEWORK_BASE"])
        print(torch_build(), costs, on_gpu or "no GPU", file=sys.stderr, flush=True)
        rows = [row(Path(place), *case) for case in RUNS[: chosen.cases]]
    return {"build": torch_build(), "process_mb": costs, "gpu_mb": on_gpu, "runs": rows}
