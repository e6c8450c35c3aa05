"""What is exported computes what ours does, for every architecture of transformers; else it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from conf.schema import Arch, Model
from experiment_utils.errors import UserError
from models import build_model
from models.options.shape import resolve_shape
from training.export.families import Source, family_of

VOCAB, POSITIONS = 61, 24
SIZE = Model(d_model=32, n_layers=2, n_heads=4)
KNOWN: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("llama", {"tied_head": False, "n_kv_heads": 2, "ffn_multiplier": 3.5, "rope_theta": 500.0}),
    ("llama", {"bias": "linear"}),
    ("llama", {"rope_scaling": "linear", "rope_factor": 4.0}),
    ("llama", {"rope_scaling": "llama3", "rope_factor": 8.0, "rope_original_positions": 16}),
    ("llama", {"activation": "geglu"}),
    ("llama", {"init": "mup", "base_width": 16}),
    ("llama", {"init": "completep", "base_width": 16, "tied_head": False}),
    ("mistral", {"window": 5}),
    ("qwen2", {"bias": "qkv", "n_kv_heads": 1}),
    ("qwen3", {"qk_norm": True, "n_kv_heads": 2}),
    ("qwen3", {"qk_norm": True, "init": "completep", "base_width": 16}),
    ("gpt2", {"norm": "layer", "positions": "learned", "activation": "gelu", "bias": "all"}),
    ("gpt2", {"norm": "layer", "positions": "learned", "activation": "gelu"}),
    (
        "gpt2",
        {"norm": "layer", "positions": "learned", "activation": "relu", "tied_head": False, "bias": "qkv"},
    ),
    ("gpt2", {"norm": "layer", "positions": "learned", "activation": "gelu_exact", "init": "mup"}),
]


def named(options: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in options.items()) or "default"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "options"), KNOWN, ids=lambda value: value if isinstance(value, str) else named(value)
)
def test_the_same_logits(family: str, options: dict[str, Any]) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    from training.export.hugging_face import _load

    arch = Arch(**options)
    model = build_model(SIZE, arch, VOCAB, POSITIONS, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # gains and biases too are to be seen
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    found = family_of(arch)
    assert found.name == family
    source = Source(arch, resolve_shape(SIZE, arch), VOCAB, POSITIONS, None)
    theirs = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(found.name, **found.config(source)), attn_implementation="eager"
    ).eval()
    _load(theirs, found.convert(source, dict(model.state_dict())))
    ids = torch.randint(VOCAB, (2, POSITIONS), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        ours, others = model(ids), theirs(ids).logits
    assert (ours - others).abs().max() < 2e-5 * ours.abs().max().clamp(min=1)


@pytest.mark.parametrize(
    "options",
    [
        {"norm_position": "post"},
        {"norm_position": "sandwich"},
        {"positions": "alibi"},
        {"positions": "none"},
        {"positions": "sinusoidal"},
        {"parallel_blocks": True},
        {"head_bias": True},
        {"logit_softcap": 30.0},
        {"attention_softcap": 50.0},
        {"n_experts": 4},
        {"family": "lstm"},
        {"family": "mingru"},
        {"activation": "relu2"},
        {"norm": "none"},
        {"rope_fraction": 0.5},
        {"bias": "all"},
        {"qk_norm": True, "bias": "linear"},
        {"window": 4, "bias": "qkv"},
    ],
    ids=named,
)
def test_what_none_computes_is_refused_and_named(options: dict[str, Any]) -> None:
    with pytest.raises(UserError) as refused:
        family_of(replace(Arch(), **options))
    assert refused.value.codes == ["no-hf-model"]
    assert all(f"arch.{key}" in str(refused.value) for key in options if key != "norm")
