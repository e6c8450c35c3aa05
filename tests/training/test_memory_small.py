"""What a model of next to nothing is told to need: no more of the allocator than it has tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.memory_measured import run_config, with_members
from training.memory_parts import estimate_run

pytestmark = pytest.mark.usefixtures("cpu_build")  # its peaks were measured

MB = 1 << 20


@pytest.mark.parametrize(
    ("width", "micro_batch", "training", "measured_mb"),
    [
        (16, 1, {}, 232),
        (32, 4, {"seq_len": 256, "effective_batch": 64}, 251),
        (32, 8, {"effective_batch": 64}, 249),
        (32, 1, {"effective_batch": 16}, 234),
        (64, 4, {"seq_len": 256, "effective_batch": 64}, 290),
        (32, 64, {"seq_len": 256}, 441),
    ],
)
def test_a_vocabulary_of_bytes(
    tmp_path: Path, width: int, micro_batch: int, training: dict[str, Any], measured_mb: int
) -> None:
    """Against peaks of real runs on two cores, measured as benchmarks/memory_estimate.py does."""
    config = run_config(tmp_path, width, micro_batch, vocab=257, **training)
    told = estimate_run(config, vocab_size=257, micro_batch=micro_batch).own_bytes / MB
    assert 0.95 * measured_mb < told < 1.15 * measured_mb


@pytest.mark.parametrize(
    ("width", "training", "least_mb", "most_mb"),
    [
        (32, {}, 382, 382),
        (64, {}, 426, 426),
        (128, {}, 575, 675),
        (128, {"checkpoint_writing": "foreground"}, 478, 604),
    ],
)
def test_few_tokens_at_once(
    tmp_path: Path, width: int, training: dict[str, Any], least_mb: int, most_mb: int
) -> None:
    """Peaks of one configuration differ by chance: what is told is enough for the highest."""
    config = run_config(tmp_path, width, 1, **training)
    told = estimate_run(config, vocab_size=50_257, micro_batch=1).own_bytes / MB
    assert 0.95 * most_mb < told < 1.25 * least_mb


@pytest.mark.parametrize(
    ("width", "micro_batch", "members", "vocab", "training", "least_mb", "most_mb"),
    [
        (32, 4, 8, 257, {}, 292, 297),
        (48, 16, 4, 257, {"effective_batch": 32}, 470, 479),
        (96, 8, 3, 257, {}, 560, 576),
        (32, 4, 4, 50_257, {}, 548, 598),
        (64, 8, 2, 50_257, {}, 567, 609),
    ],
)
def test_runs_in_one_process(
    tmp_path: Path,
    width: int,
    micro_batch: int,
    members: int,
    vocab: int,
    training: dict[str, Any],
    least_mb: int,
    most_mb: int,
) -> None:
    """The allocator is one, a chunk's logits one member holds at a time, and gradients stay there."""
    config = with_members(run_config(tmp_path, width, micro_batch, vocab=vocab, **training), members)
    found = estimate_run(config, vocab_size=vocab, micro_batch=micro_batch, together=members)
    told = found.own_bytes / MB
    assert 0.95 * most_mb < told < 1.15 * least_mb


@pytest.mark.parametrize(
    ("width", "micro_batch", "least_mb", "most_mb"),
    [(192, 1, 833, 897), (192, 2, 847, 861), (256, 1, 1230, 1255)],
)
def test_a_head_that_is_mapped_by_itself_leaves_the_holes_of_logits(
    tmp_path: Path, width: int, micro_batch: int, least_mb: int, most_mb: int
) -> None:
    config = run_config(tmp_path, width, micro_batch)
    told = estimate_run(config, vocab_size=50_257, micro_batch=micro_batch).own_bytes / MB
    assert 0.95 * most_mb < told < 1.15 * least_mb
