"""What blocks that are computed again are told to need: the deeper the model, the more holes they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory_measured import run_config
from training.memory_parts import estimate_run

pytestmark = pytest.mark.usefixtures("cpu_build")  # its peaks were measured

MB = 1 << 20
BYTES = 257


@pytest.mark.parametrize(
    ("width", "micro_batch", "vocab", "training", "measured_mb"),
    [
        (64, 32, BYTES, {"seq_len": 256}, 438),
        (80, 128, BYTES, {"seq_len": 256}, 1082),
        (96, 32, BYTES, {"seq_len": 256}, 613),
        (128, 64, BYTES, {"seq_len": 256}, 1169),
        (128, 8, 50_257, {}, 585),
        (160, 32, BYTES, {"seq_len": 256}, 1080),
        (192, 16, BYTES, {"seq_len": 256}, 879),
        (192, 32, BYTES, {"seq_len": 256}, 1378),
        (192, 32, BYTES, {}, 857),
        (256, 16, BYTES, {"seq_len": 256}, 1342),
    ],
)
def test_recomputed_blocks(
    tmp_path: Path, width: int, micro_batch: int, vocab: int, training: dict[str, Any], measured_mb: int
) -> None:
    """Against peaks of real runs on two cores, measured as benchmarks/memory_estimate.py does."""
    config = run_config(
        tmp_path, width, micro_batch, vocab=vocab, steps=4, activation_checkpointing=True, **training
    )
    told = estimate_run(config, vocab_size=vocab, micro_batch=micro_batch).own_bytes / MB
    assert 0.95 * measured_mb < told < 1.15 * measured_mb
