"""What layers of an LSTM are told to need: their kernel brings its own room, the allocator adds little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory_measured import VOCAB, run_config, with_arch
from training.memory_parts import estimate_run

pytestmark = pytest.mark.usefixtures("cpu_build")  # its peaks were measured

MB = 1 << 20


@pytest.mark.parametrize(
    ("width", "micro_batch", "vocab", "training", "measured_mb"),
    [
        (48, 4, 256, {"seq_len": 512, "effective_batch": 8}, 262),
        (64, 64, 256, {"effective_batch": 128}, 397),
        (128, 32, 256, {}, 505),
        (128, 32, 256, {"effective_batch": 64}, 552),
        (128, 8, VOCAB, {"effective_batch": 16}, 562),
        (256, 8, 256, {}, 745),
        (96, 32, 257, {"seq_len": 256}, 462),
        (128, 16, 257, {"seq_len": 256}, 493),
        (128, 32, 257, {"seq_len": 256}, 728),
        (192, 32, 257, {}, 739),
    ],
)
def test_layers_of_an_lstm(
    tmp_path: Path, width: int, micro_batch: int, vocab: int, training: dict[str, Any], measured_mb: int
) -> None:
    """Against peaks of real runs on two cores, measured as benchmarks/memory_estimate.py does."""
    options = {"steps": 4, "checkpoint_every": 2} | training
    config = run_config(tmp_path, width, micro_batch, vocab=vocab, **options)
    config = with_arch(config, name="lstm", family="lstm", norm="layer", bias="linear", init="xavier")
    told = estimate_run(config, vocab_size=vocab, micro_batch=micro_batch).own_bytes / MB
    assert 0.95 * measured_mb < told < 1.15 * measured_mb
