from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from conf.schema import Arch, Model
from models import LanguageModel, build_model
from models.counts import count_parameters, flops_per_token

ARCHS = [
    Arch(norm=norm, norm_position=place, positions=positions, activation=activation, tied_head=tied)
    for norm, place, positions, activation, tied in itertools.product(
        ("rms", "layer"),
        ("pre", "post"),
        ("rotary", "learned", "sinusoidal"),
        ("swiglu", "gelu", "relu", "silu"),
        (True, False),
    )
]


def size(model: LanguageModel, *prefixes: str) -> int:
    return sum(p.numel() for name, p in model.named_parameters() if name.startswith(prefixes))


@pytest.mark.parametrize("multiplier", [4.0, 8 / 3])
def test_counts_equal_the_built_model_for_every_combination(multiplier: int) -> None:
    config, vocab_size, positions = Model(d_model=20, n_layers=3, n_heads=2), 37, 11
    for arch in ARCHS:
        arch.ffn_multiplier = multiplier
        model = build_model(config, arch, vocab_size, positions)
        counted = count_parameters(config, arch, vocab_size, positions)
        assert counted.total == size(model, ""), arch
        assert counted.embedding == size(model, "embedding"), arch
        assert counted.positions == size(model, "positions"), arch
        assert counted.blocks == size(model, "blocks"), arch
        assert counted.final_norm == size(model, "final_norm"), arch
        assert counted.head == size(model, "head"), arch
        in_blocks = [p.numel() for p in model.blocks.parameters() if p.ndim == 2]
        assert counted.non_embedding == sum(in_blocks), arch


@pytest.mark.parametrize(("width", "layers", "n"), [(32, 2, 32_768), (256, 16, 16_777_216)])
def test_n_of_the_scaling_laws_is_16_layers_width_squared(width: int, layers: int, n: int) -> None:
    counted = count_parameters(Model(d_model=width), Arch(), 50_257, 128)
    assert counted.non_embedding == 16 * layers * width**2 == n
    assert counted.total == n + 50_257 * width + (2 * layers + 1) * width


@pytest.mark.parametrize(
    ("model", "arch", "vocab_size", "seq_len"),
    [
        (Model(d_model=64), Arch(), 257, 128),
        (Model(d_model=32), Arch(tied_head=False, norm="layer", positions="learned"), 5000, 64),
        (Model(d_model=48, n_layers=2), Arch(activation="gelu", norm_position="post"), 300, 256),
        (Model(d_model=32), Arch(positions="sinusoidal", activation="relu", ffn_multiplier=3), 100, 32),
    ],
)
def test_flops_agree_with_torchs_counter_within_a_percent(
    model: Model, arch: Arch, vocab_size: int, seq_len: int
) -> None:
    built = build_model(model, arch, vocab_size, seq_len)
    ids = torch.randint(vocab_size, (2, seq_len))
    # The counter does not know the CPU's flash attention; the plain one is made of products it knows.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        F.cross_entropy(built(ids).flatten(0, 1), ids.flatten()).backward()
    flops = flops_per_token(model, arch, vocab_size, seq_len)
    assert flops.total * ids.numel() == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_the_head_is_most_of_a_small_model() -> None:
    flops = flops_per_token(Model(d_model=32), Arch(), 50_257, 128)
    assert flops.head == 6 * 50_257 * 32
    assert flops.blocks == 6 * 32_768
    assert flops.attention == 12 * 2 * 32 * 128
    assert flops.total == flops.head + flops.blocks + flops.attention
    assert flops.head / flops.total > 0.97


def test_counting_loads_no_torch(root: Path) -> None:
    code = "import sys, models, models.counts, training.schedules; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
