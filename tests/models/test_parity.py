"""Logits and gradients of transformers' own models, from copied weights, in fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conf.schema import Arch, Model
from models import LanguageModel, build_model
from models.layers.forward_context import begin

pytestmark = pytest.mark.slow

VOCAB, SEQ, WIDTH, LAYERS, HEADS = 61, 48, 32, 2, 4
Pairs = Iterator[tuple[Tensor, Tensor]]
"""A parameter of ours, and what it is of theirs: a view of one, or several in a row."""

LLAMA = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": SEQ,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
    "attention_dropout": 0.0,
}


def llama_pairs(ours: LanguageModel, theirs: Any) -> Pairs:
    """Of Llama and of those that share its names."""
    yield ours.embedding.weight, theirs.model.embed_tokens.weight
    yield ours.final_norm.weight, theirs.model.norm.weight
    for block, layer in zip(ours.blocks, theirs.model.layers, strict=True):
        attention = layer.self_attn
        yield block.attention_norm.weight, layer.input_layernorm.weight
        yield block.feed_forward_norm.weight, layer.post_attention_layernorm.weight
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        yield block.attention.qkv.weight, torch.cat([part.weight for part in parts])
        if block.attention.qkv.bias is not None:
            yield block.attention.qkv.bias, torch.cat([part.bias for part in parts])
        if hasattr(attention, "q_norm"):
            yield block.attention.query_norm.weight, attention.q_norm.weight
            yield block.attention.key_norm.weight, attention.k_norm.weight
        yield block.attention.output.weight, attention.o_proj.weight
        if hasattr(layer.mlp, "experts"):
            yield block.feed_forward.router.weight, layer.mlp.gate.weight
            yield block.feed_forward.input.weight, layer.mlp.experts.gate_up_proj
            yield block.feed_forward.output.weight, layer.mlp.experts.down_proj
            continue
        inputs = torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight])
        yield block.feed_forward.input.weight, inputs
        yield block.feed_forward.output.weight, layer.mlp.down_proj.weight


def gpt2_pairs(ours: LanguageModel, theirs: Any) -> Pairs:
    """GPT-2 keeps its matrices transposed."""
    inside = theirs.transformer
    yield ours.embedding.weight, inside.wte.weight
    yield ours.positions.table.weight, inside.wpe.weight  # type: ignore[union-attr]
    for norm, of_theirs in [(ours.final_norm, inside.ln_f)]:
        yield norm.weight, of_theirs.weight
        yield norm.bias, of_theirs.bias
    for block, layer in zip(ours.blocks, inside.h, strict=True):
        for norm, of_theirs in ((block.attention_norm, layer.ln_1), (block.feed_forward_norm, layer.ln_2)):
            yield norm.weight, of_theirs.weight
            yield norm.bias, of_theirs.bias
        for linear, of_theirs in (
            (block.attention.qkv, layer.attn.c_attn),
            (block.attention.output, layer.attn.c_proj),
            (block.feed_forward.input, layer.mlp.c_fc),
            (block.feed_forward.output, layer.mlp.c_proj),
        ):
            yield linear.weight, of_theirs.weight.T
            yield linear.bias, of_theirs.bias


def rope(kind: str, **options: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10_000.0, "rope_type": kind, **options}}


def llama(**options: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**{**LLAMA, **options}))


def mistral(**options: Any) -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(MistralConfig(**{**LLAMA, "head_dim": WIDTH // HEADS, **options}))


def qwen2(**options: Any) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(**{**LLAMA, **options}))


def qwen3(**options: Any) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**{**LLAMA, "head_dim": WIDTH // HEADS, **options}))


def mixtral(**options: Any) -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(**{**LLAMA, "num_local_experts": 4, **options}))


def gpt2(**options: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB, n_positions=SEQ, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.2, **options,
        )
    )  # fmt: skip


GQA = {"num_key_value_heads": 2}
LLAMA3 = {
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "llama": (llama, rope("default"), {}),
    "llama with a head of its own": (llama, {"tie_word_embeddings": False}, {"tied_head": False}),
    "llama, theta": (llama, rope("default", rope_theta=500.0), {"rope_theta": 500.0}),
    "llama, grouped": (llama, GQA, {"n_kv_heads": 2}),
    "llama, one for all": (llama, {"num_key_value_heads": 1}, {"n_kv_heads": 1}),
    "llama, linear": (
        llama, {**GQA, **rope("linear", factor=4.0)},
        {"n_kv_heads": 2, "rope_scaling": "linear", "rope_factor": 4.0},
    ),
    "llama 3": (
        llama, {**GQA, **rope("llama3", **LLAMA3)},
        {"n_kv_heads": 2, "rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_positions": 16},
    ),
    "llama, ntk": (
        llama, rope("default", rope_theta=10_000.0 * 4.0 ** (8 / 6)),
        {"rope_scaling": "ntk", "rope_factor": 4.0},
    ),
    "mistral": (mistral, {**GQA, "sliding_window": 8}, {"n_kv_heads": 2, "window": 8}),
    "qwen 2": (qwen2, GQA, {"n_kv_heads": 2, "bias": "qkv"}),
    "qwen 3": (qwen3, GQA, {"n_kv_heads": 2, "qk_norm": True}),
    "mixtral": (
        mixtral, {**GQA, **rope("default"), "num_experts_per_tok": 2},
        {"n_kv_heads": 2, "n_experts": 4, "balance_loss": 0.0},
    ),
    "gpt2": (gpt2, {}, {"norm": "layer", "positions": "learned", "activation": "gelu", "bias": "all"}),
    "gpt2, exact gelu": (
        gpt2, {"activation_function": "gelu"},
        {"norm": "layer", "positions": "learned", "activation": "gelu_exact", "bias": "all"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_logits_and_gradients_are_theirs(case: tuple[Any, dict[str, Any], dict[str, Any]]) -> None:
    build, of_theirs, of_ours = case
    torch.manual_seed(0)
    theirs = build(**of_theirs, attn_implementation="eager")
    for name, parameter in theirs.named_parameters():
        if "norm" in name or "ln_" in name or "bias" in name:
            torch.nn.init.normal_(parameter, 0.0 if "bias" in name else 1.0, 0.1)
    ours = build_model(Model(d_model=WIDTH, n_layers=LAYERS, n_heads=HEADS), Arch(**of_ours), VOCAB, SEQ)
    pairs = gpt2_pairs if build is gpt2 else llama_pairs
    with torch.no_grad():
        for mine, other in _all_pairs(pairs, ours, theirs):
            mine.copy_(other)
    ids = torch.randint(VOCAB, (3, SEQ))
    logits, expected = ours(ids), theirs(ids).logits
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    for of_model in (logits, expected):
        F.cross_entropy(of_model.flatten(0, 1), ids.roll(-1, 1).flatten()).backward()
    mine = [parameter.grad for parameter, _ in _all_pairs(pairs, ours, theirs)]
    for parameter in theirs.parameters():
        parameter.data = parameter.grad
    for grad, (_, other) in zip(mine, _all_pairs(pairs, ours, theirs), strict=True):
        torch.testing.assert_close(grad, other.detach(), rtol=1e-5, atol=1e-5)


def _all_pairs(
    pairs: Callable[[LanguageModel, Any], Pairs], ours: LanguageModel, theirs: Any
) -> list[tuple[Tensor, Tensor]]:
    found = list(pairs(ours, theirs))
    if ours.head is not None:
        found.append((ours.head.weight, theirs.lm_head.weight))
    assert len(found) == len(list(ours.parameters()))
    return found


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("kv_heads", [HEADS, 1])
def test_capped_attention_is_that_of_gemma_2(kv_heads: int, window: int | None) -> None:
    from transformers import Gemma2Config
    from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention

    head = WIDTH // HEADS
    config = Gemma2Config(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=kv_heads, head_dim=head,
        num_hidden_layers=LAYERS, query_pre_attn_scalar=head, attn_logit_softcapping=0.5,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = Gemma2Attention(config, layer_idx=1).eval()
    arch = Arch(attention_softcap=0.5, n_kv_heads=kv_heads, window=window)
    model = build_model(Model(d_model=WIDTH, n_layers=1, n_heads=HEADS), arch, VOCAB, SEQ)
    ours: Any = model.blocks[0].attention
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_(0, 0.3)
        projections = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
        parts = (WIDTH, kv_heads * head, kv_heads * head)
        for projection, part in zip(projections, ours.qkv.weight.split(parts), strict=True):
            projection.weight.copy_(part)
        theirs.o_proj.weight.copy_(ours.output.weight)
    going = begin(model.positions, SEQ, None, window, torch.device("cpu"))
    seen = torch.ones(SEQ, SEQ, dtype=torch.bool).tril() if going.mask is None else going.mask
    mask = torch.zeros(1, 1, SEQ, SEQ).masked_fill(~seen, float("-inf"))
    tables = tuple(table.repeat(1, 2)[None] for table in (model.positions.cos, model.positions.sin))
    x = torch.randn(3, SEQ, WIDTH)
    results = []
    for attention in (
        lambda x: ours(x, going),
        lambda x: theirs(x, position_embeddings=tables, attention_mask=mask)[0],
    ):
        given = x.clone().requires_grad_()
        found = attention(given)
        (found * x).sum().backward()
        results.append((found.detach(), given.grad))
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.output.weight.grad, theirs.o_proj.weight.grad, rtol=1e-5, atol=1e-5)
    assert ours.qkv.weight.grad.abs().max() > 0
