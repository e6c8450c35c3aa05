from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from conf.schema import Arch, Model
from models import LanguageModel, build_model
from models.options.activations import ACTIVATIONS
from models.options.counts import count_parameters, flops_per_token
from models.options.option_conflicts import combination_problems
from tests.searched import examples

ARCHS = st.builds(
    Arch,
    norm=st.sampled_from(["rms", "layer", "none"]),
    norm_position=st.sampled_from(["pre", "post", "sandwich"]),
    final_norm=st.sampled_from(["same", "rms", "layer", "none"]),
    qk_norm=st.booleans(),
    parallel_blocks=st.booleans(),
    positions=st.sampled_from(["rotary", "learned", "sinusoidal", "alibi", "none"]),
    rope_fraction=st.sampled_from([1.0, 0.5]),
    n_kv_heads=st.sampled_from([None, 1, 2]),
    window=st.sampled_from([None, 5]),
    attention_softcap=st.sampled_from([None, None, 20.0]),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    ffn_multiplier=st.sampled_from([4.0, 8 / 3]),
    n_experts=st.sampled_from([None, None, 3]),
    bias=st.sampled_from(["none", "qkv", "linear", "all"]),
    head_bias=st.booleans(),
    tied_head=st.booleans(),
    init=st.sampled_from(["default", "mup", "completep"]),
).filter(lambda arch: not combination_problems(arch))
"""All that changes a count."""

LSTMS = st.builds(
    Arch,
    family=st.just("lstm"),
    norm=st.sampled_from(["rms", "layer", "none"]),
    norm_position=st.sampled_from(["pre", "post"]),
    final_norm=st.sampled_from(["same", "rms", "layer", "none"]),
    bias=st.sampled_from(["none", "linear", "all"]),
    lstm_residual=st.booleans(),
    dropout_recurrent=st.sampled_from([0.0, 0.1]),
    head_bias=st.booleans(),
    tied_head=st.booleans(),
).filter(lambda arch: not combination_problems(arch))


@contextmanager
def without_onednn() -> Iterator[None]:
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(True)


def size(model: LanguageModel, *prefixes: str) -> int:
    return sum(p.numel() for name, p in model.named_parameters() if name.startswith(prefixes))


MINGRUS = st.builds(
    Arch,
    family=st.just("mingru"),
    norm=st.sampled_from(["rms", "layer", "none"]),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    ffn_multiplier=st.sampled_from([4.0, 8 / 3]),
    n_experts=st.sampled_from([None, None, 3]),
    bias=st.sampled_from(["none", "linear", "all"]),
    tied_head=st.booleans(),
).filter(lambda arch: not combination_problems(arch))


@settings(max_examples=examples(200), deadline=None)
@given(ARCHS | LSTMS | MINGRUS)
def test_counts_equal_the_built_model_for_every_combination(arch: Arch) -> None:
    heads = 4 if arch.family == "transformer" else None
    config, vocab_size, positions = Model(d_model=48, n_layers=3, n_heads=heads), 37, 11
    model = build_model(config, arch, vocab_size, positions)
    counted = count_parameters(config, arch, vocab_size, positions)
    assert counted.total == size(model, "")
    assert counted.embedding == size(model, "embedding")
    assert counted.positions == size(model, "positions")
    assert counted.blocks == size(model, "blocks")
    assert counted.final_norm == size(model, "final_norm")
    assert counted.head == size(model, "head")
    in_blocks = [p.numel() for p in model.blocks.parameters() if p.ndim >= 2]
    assert counted.non_embedding == sum(in_blocks)


@pytest.mark.parametrize(
    ("width", "total"),
    [(32, 1_692_273), (64, 3_532_817), (128, 8_595_921), (256, 29_755_217), (512, 160_246_353)],
)
def test_the_sizes_of_the_replaced_system_are_met_exactly(width: int, total: int) -> None:
    arch = Arch(final_norm="layer", bias="all", head_bias=True)
    counted = count_parameters(Model(d_model=width), arch, 50_257, 128)
    layers = width // 16
    assert counted.total == total
    assert total == 50_257 * (width + 1) + layers * (16 * width**2 + 15 * width) + 2 * width


@pytest.mark.parametrize(("width", "layers", "n"), [(32, 2, 32_768), (256, 16, 16_777_216)])
def test_n_of_the_scaling_laws_is_16_layers_width_squared(width: int, layers: int, n: int) -> None:
    counted = count_parameters(Model(d_model=width), Arch(), 50_257, 128)
    assert counted.non_embedding == 16 * layers * width**2 == n
    assert counted.total == n + 50_257 * width + (2 * layers + 1) * width


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(ARCHS | LSTMS | MINGRUS, st.sampled_from([(64, 257), (32, 5000), (128, 100)]))
def test_flops_agree_with_torchs_counter_within_a_percent(arch: Arch, sizes: tuple[int, int]) -> None:
    model, (seq_len, vocab_size) = Model(d_model=64, n_layers=2), sizes
    built = build_model(model, arch, vocab_size, seq_len)
    ids = torch.randint(vocab_size, (2, seq_len))
    # The counter does not know the CPU's flash attention; the plain one is made of products it knows.
    # Nor oneDNN's kernel of an LSTM.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), without_onednn():
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
    code = (
        "import sys, models, models.options.counts, training.step.schedules; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
