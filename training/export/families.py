"""Model family of transformers that computes a trained model, and its weights under their names.

An architecture that transformers does not have is refused with the reason for each family. Multipliers of
`init=mup` and `completep` become part of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from conf.schema import Arch
from experiment_utils.errors import UserError
from models.options.parametrization import Parametrization, parametrization
from models.options.shape import Shape, final_norm

if TYPE_CHECKING:
    from torch import Tensor

    Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Source:
    """A model to export. eot_id: end of text of its tokenizer."""

    arch: Arch
    shape: Shape
    vocab_size: int
    max_positions: int
    eot_id: int | None


@dataclass(frozen=True)
class Family:
    """A model family of transformers.

    name: its model_type. lacks: options of an architecture that it does not have. config: its keys.
    convert: weights under its names.
    """

    name: str
    lacks: Callable[[Arch], list[str]]
    config: Callable[[Source], dict[str, Any]]
    convert: Callable[[Source, Weights], Weights]


def family_of(arch: Arch) -> Family:
    """First family that computes this architecture.

    Raises:
        UserError: none does; names the options that each lacks.
    """
    missing = {family.name: family.lacks(arch) for family in FAMILIES}
    for family in FAMILIES:
        if not missing[family.name]:
            return family
    reasons = "; ".join(f"{name} has no {', no '.join(lacks)}" for name, lacks in missing.items())
    raise UserError(
        f"no model of transformers computes what arch={arch.name} does: {reasons}", code="no-hf-model"
    )


def _lacks_everywhere(arch: Arch) -> list[str]:
    """Options that no family has."""
    return _named(
        {
            f"arch.family={arch.family}": arch.family != "transformer",
            f"arch.norm_position={arch.norm_position}": arch.norm_position != "pre",
            f"arch.norm={arch.norm} with arch.final_norm={arch.final_norm}": final_norm(arch) != arch.norm,
            "arch.parallel_blocks": arch.parallel_blocks,
            "arch.head_bias": arch.head_bias,
            "arch.logit_softcap": arch.logit_softcap is not None,
            "arch.attention_softcap": arch.attention_softcap is not None,
            "arch.n_experts": arch.n_experts is not None,
        }
    )


def _named(found: Mapping[str, bool]) -> list[str]:
    return [name for name, is_so in found.items() if is_so]


def _llama_lacks(
    arch: Arch, biases: tuple[str, ...] = ("none",), *, has_window: bool = False, has_qk_norm: bool = False
) -> list[str]:
    """Options that a family of Llama's kind lacks, which has these biases."""
    return _lacks_everywhere(arch) + _named(
        {
            f"arch.norm={arch.norm}": arch.norm != "rms",
            f"arch.positions={arch.positions}": arch.positions != "rotary",
            "arch.rope_fraction": arch.rope_fraction != 1.0,
            f"arch.rope_scaling={arch.rope_scaling}": arch.rope_scaling == "ntk",
            f"arch.activation={arch.activation}": arch.activation not in ("swiglu", "geglu"),
            f"arch.bias={arch.bias}": arch.bias not in biases,
            "arch.qk_norm": arch.qk_norm and not has_qk_norm,
            "arch.window": bool(arch.window) and not has_window,
        }
    )


def _llama_config(source: Source) -> dict[str, Any]:
    arch, shape = source.arch, source.shape
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": arch.rope_theta}
    if arch.rope_scaling == "linear":
        rope |= {"rope_type": "linear", "factor": arch.rope_factor}
    elif arch.rope_scaling == "llama3":
        rope |= {
            "rope_type": "llama3",
            "factor": arch.rope_factor,
            "low_freq_factor": arch.rope_low_frequency,
            "high_freq_factor": arch.rope_high_frequency,
            "original_max_position_embeddings": arch.rope_original_positions,
        }
    return {
        "hidden_size": shape.d_model,
        "intermediate_size": shape.ffn_hidden,
        "num_hidden_layers": shape.n_layers,
        "num_attention_heads": shape.n_heads,
        "num_key_value_heads": shape.n_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}[arch.activation],
        "rms_norm_eps": arch.norm_eps,
        "max_position_embeddings": source.max_positions,
        "rope_parameters": rope,
        "attention_bias": arch.bias in ("linear", "qkv"),
        "mlp_bias": arch.bias == "linear",
        **({"sliding_window": arch.window} if arch.window else {}),
        **_of_all(source),
    }


def _of_all(source: Source) -> dict[str, Any]:
    return {
        "vocab_size": source.vocab_size,
        "tie_word_embeddings": source.arch.tied_head,
        "bos_token_id": source.eot_id,
        "eos_token_id": source.eot_id,
        "pad_token_id": None,
    }


def _to_llama(source: Source, weights: Weights) -> Weights:
    shape, found = source.shape, {"model.embed_tokens.weight": weights["embedding.weight"]}
    parts = [heads * shape.head_dim for heads in (shape.n_heads, shape.n_kv_heads, shape.n_kv_heads)]
    folded = _folded(source, weights)
    for name, tensor in folded.items():
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            module, kind = rest.rsplit(".", 1)
            place = f"model.layers.{number}."
            if module == "attention.qkv":
                for letter, part in zip("qkv", tensor.split(parts), strict=True):
                    found[f"{place}self_attn.{letter}_proj.{kind}"] = part
            elif module == "feed_forward.input":
                gate, up = tensor.chunk(2)
                found[f"{place}mlp.gate_proj.{kind}"], found[f"{place}mlp.up_proj.{kind}"] = gate, up
            else:
                found[f"{place}{_OF_LLAMA[module]}.{kind}"] = tensor
        elif name.startswith("final_norm."):
            found["model.norm." + name.partition(".")[2]] = tensor
    if not source.arch.tied_head:
        found["lm_head.weight"] = folded["head.weight"]
    return {name: tensor.contiguous() for name, tensor in found.items()}


_OF_LLAMA = {
    "attention_norm": "input_layernorm",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.output": "mlp.down_proj",
}


def _gpt2_lacks(arch: Arch) -> list[str]:
    return _lacks_everywhere(arch) + _named(
        {
            f"arch.norm={arch.norm}": arch.norm != "layer",
            f"arch.positions={arch.positions}": arch.positions != "learned",
            f"arch.activation={arch.activation}": arch.activation not in _OF_GPT2_ACTIVATION,
            "arch.n_kv_heads": arch.n_kv_heads is not None,
            "arch.qk_norm": arch.qk_norm,
            "arch.window": bool(arch.window),
        }
    )


_OF_GPT2_ACTIVATION = {"gelu": "gelu_new", "gelu_exact": "gelu", "relu": "relu", "silu": "silu"}


def _gpt2_config(source: Source) -> dict[str, Any]:
    arch, shape = source.arch, source.shape
    return {
        "n_embd": shape.d_model,
        "n_inner": shape.ffn_hidden,
        "n_layer": shape.n_layers,
        "n_head": shape.n_heads,
        "n_positions": source.max_positions,
        "activation_function": _OF_GPT2_ACTIVATION[arch.activation],
        "layer_norm_epsilon": arch.norm_eps,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        **_of_all(source),
    }


def _to_gpt2(source: Source, weights: Weights) -> Weights:
    """Matrices are transposed. A bias that the model lacks becomes 0."""
    import torch

    found = {
        "transformer.wte.weight": weights["embedding.weight"],
        "transformer.wpe.weight": weights["positions.table.weight"],
    }
    folded = _folded(source, weights)
    for name, tensor in folded.items():
        module, _, kind = name.rpartition(".")
        if name.startswith("blocks."):
            _, number, inner = module.split(".", 2)
            place = f"transformer.h.{number}.{_OF_GPT2[inner]}"
        elif module == "final_norm":
            place = "transformer.ln_f"
        else:
            continue
        is_product = kind == "weight" and tensor.ndim == 2
        found[f"{place}.{kind}"] = tensor.T if is_product else tensor
        found.setdefault(f"{place}.bias", torch.zeros(tensor.shape[0]))
    if not source.arch.tied_head:
        found["lm_head.weight"] = folded["head.weight"]
    return {name: tensor.contiguous() for name, tensor in found.items()}


_OF_GPT2 = {
    "attention_norm": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.input": "mlp.c_fc",
    "feed_forward.output": "mlp.c_proj",
}


def _folded(source: Source, weights: Weights) -> Weights:
    """Weights of a model without multipliers that computes the same."""
    how: Parametrization = parametrization(source.shape, source.arch)
    usual = source.shape.head_dim**-0.5
    query = 1.0 if how.attention_scale is None else how.attention_scale / usual
    queries = source.shape.n_heads * source.shape.head_dim
    found = dict(weights)
    for name, tensor in weights.items():
        module = name.rpartition(".")[0]
        if module.endswith(("attention.output", "feed_forward.output")):
            found[name] = how.branch_multiplier * tensor
        elif module == "final_norm":
            found[name] = how.output_multiplier * tensor
        elif source.arch.qk_norm and module.endswith("attention.query_norm"):
            found[name] = query * tensor
        elif not source.arch.qk_norm and module.endswith("attention.qkv"):
            found[name] = tensor.clone()
            found[name][:queries] *= query
    return found


FAMILIES = (
    Family("llama", partial(_llama_lacks, biases=("none", "linear")), _llama_config, _to_llama),
    Family("mistral", partial(_llama_lacks, has_window=True), _llama_config, _to_llama),
    Family("qwen2", partial(_llama_lacks, biases=("qkv",)), _llama_config, _to_llama),
    Family("qwen3", partial(_llama_lacks, has_qk_norm=True), _llama_config, _to_llama),
    Family("gpt2", _gpt2_lacks, _gpt2_config, _to_gpt2),
)
"""Tried in this order."""
