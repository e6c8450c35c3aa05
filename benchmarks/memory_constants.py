"""Measure again what memory/constants.py says of a process by itself, on sizes that score nothing.

Each run is a process of its own (benchmarks/memory_measured.py). What a run of a tiny model holds is the
base; what runs of other sizes hold beyond it and their tensors is the allocator's: a fixed part, and a share
of what goes through its heap. The constants in the table are chosen so that no run here is told more than 2%
too little.

    python benchmarks/memory_constants.py [--save]
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import save
from benchmarks.memory_measured import VOCAB, measure, run_config
from memory.estimate import Estimate
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
FROM_TABLE = ("python and torch", "allocator", "compiler", "batches")


def tensors_of(estimate: Estimate) -> int:
    """The peak of the model's and the optimizer's tensors alone."""
    parts = [part for part in estimate.parts if part.name not in FROM_TABLE and not part.beside]
    return Estimate.of(parts).own_bytes


def measured_beside(folder: Path, width: int, batch: int, training: dict[str, Any]) -> dict[str, Any]:
    config = run_config(folder / f"{width}-{batch}-{len(list(folder.iterdir()))}", width, batch, **training)
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/memory_constants.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tiny = dataclasses.replace(run_config(folder / "tiny", 16, 1, vocab=300))
        rows: list[dict[str, Any]] = [{"base_mb": round(measure(tiny).peak_bytes / MB)}]
        print(rows[0], flush=True)
        for width, batch, training in RUNS:
            rows.append(measured_beside(folder, width, batch, training))
            print(rows[-1], flush=True)
    if options.save:
        save("memory_constants", {"runs": rows})


if __name__ == "__main__":
    main()
