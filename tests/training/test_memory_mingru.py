"""What layers of a minGRU are told to need: their scan leaves more holes than attention does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.memory_measured import run_config, with_arch
from training.memory_parts import estimate_run

pytestmark = pytest.mark.usefixtures("cpu_build")  # its peaks were measured

MB = 1 << 20


@pytest.mark.parametrize(
    ("width", "micro_batch", "seq_len", "measured_mb"),
    [
        (96, 32, 256, 911),
        (128, 8, 1024, 1375),
        (128, 16, 128, 544),
        (128, 32, 128, 830),
        (128, 32, 256, 1392),
        (128, 64, 64, 841),
        (192, 16, 128, 946),
    ],
)
def test_layers_of_a_mingru(
    tmp_path: Path, width: int, micro_batch: int, seq_len: int, measured_mb: int
) -> None:
    """Against peaks of real runs on two cores, measured as benchmarks/memory_estimate.py does."""
    options = {"steps": 4, "checkpoint_every": 2, "seq_len": seq_len}
    config = with_arch(
        run_config(tmp_path, width, micro_batch, vocab=257, **options), name="mingru", family="mingru"
    )
    told = estimate_run(config, vocab_size=257, micro_batch=micro_batch).own_bytes / MB
    assert 0.95 * measured_mb < told < 1.15 * measured_mb
