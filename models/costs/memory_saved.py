"""Bytes that autograd saves of a model, tensor by tensor, by formula. No torch.

The formulas follow the code of the layers in this package; tests compare them with the real model.
"""

from __future__ import annotations

from conf.schema import Arch, Model
from models.costs.memory_lstm import input_saved_bytes, layer_saved_bytes
from models.costs.memory_sizes import FP32, INT64, StepSizes, norm_saved_bytes
from models.options.activations import activation_costs
from models.options.counts import block_matrices, norms_of_block
from models.options.family_keys import RECURRENT
from models.options.recomputed import recomputed_blocks
from models.options.shape import Shape, final_norm, positions_of, resolve_shape

COMPILED_SHARE = 0.85
"""Share of a block's saved bytes that torch.compile keeps: it computes the cheap rest again
(measured by benchmarks/memory_constants.py)."""


def is_gated(arch: Arch) -> bool:
    """Whether the first product of the feed-forward part is of twice the hidden width."""
    return activation_costs(arch.activation).matrices == 3


def feed_forwards_per_token(arch: Arch) -> int:
    """Feed-forward parts that a token goes through."""
    return 1 if arch.n_experts is None else arch.experts_per_token


def saved_bytes(model: Model, arch: Arch, step: StepSizes) -> int:
    """Bytes saved from the embedding to the last hidden states, without parameters and buffers.

    Raises:
        UserError: as `resolve_shape`.
    """
    shape = resolve_shape(model, arch)
    once = INT64 * step.tokens + final_norm_saved_bytes(shape, arch, step)
    if arch.dropout_embedding:
        once += FP32 * (step.micro_batch if arch.dropout_locked else step.tokens) * shape.d_model
    again = recomputed_blocks(step.activation_checkpointing, shape.n_layers)
    inputs = FP32 * step.tokens * shape.d_model * again
    masks = mask_bytes(shape, arch, step) if again else 0
    if again == shape.n_layers:
        return once + inputs + masks
    blocks = (shape.n_layers - again) * block_saved_bytes(shape, arch, step)
    if step.compiled:
        blocks = int(COMPILED_SHARE * blocks)
    is_kernel = not arch.dropout_attention and arch.attention_softcap is None
    if _shares_mask(arch, step) and is_kernel and not again:
        once += _mask_numbers(shape, arch, step) * FP32
    if arch.family == "lstm":
        once += input_saved_bytes(shape, arch, step)
    return once + inputs + masks + blocks


def block_saved_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Bytes that one block saves."""
    if arch.family == "lstm":
        return layer_saved_bytes(shape, arch, step)
    tokens, size = step.tokens, step.product_bytes
    # Inputs of the first products. Parallel parts share one, of which autocast makes two copies.
    inputs = 1 if arch.parallel_blocks and step.precision == "fp32" else 2
    copies = size * block_matrices(shape, arch) if step.precision != "fp32" else 0  # of weights, by autocast
    rows = step.micro_batch if arch.dropout_locked else tokens
    dropped = 2 * size * rows * shape.d_model if arch.dropout_residual else 0
    return (
        norms_of_block(arch) * norm_saved_bytes(shape.d_model, arch.norm, step)
        + size * tokens * inputs * shape.d_model
        + _attention_saved_bytes(shape, arch, step)
        + feed_forward_saved_bytes(shape, arch, step)
        + copies
        + dropped
    )


def final_norm_saved_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    return norm_saved_bytes(shape.d_model, final_norm(arch), step)


def _attention_saved_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Queries, keys and values as one tensor, which values keep; those that were rotated or normed; the
    result, and a copy of it in the order of the output product if their layouts differ; a number a head.
    """
    if arch.family == "mingru":
        return _recurrence_saved_bytes(shape, step)
    d, kv, size, tokens = shape.d_model, shape.kv_dim, step.product_bytes, step.tokens
    besides = _qk_norm_saved_bytes(shape, arch, step) + _document_table_bytes(shape, arch, step)
    if arch.attention_softcap is not None:
        qkv = size * tokens * (d + 2 * kv)
        of_norms = qkv if arch.qk_norm and step.precision == "fp32" else 0  # the tensor of all three stays
        return qkv + _capped_score_bytes(shape, arch, step) + size * tokens * d + of_norms + besides
    if arch.dropout_attention:
        # By plain products, in fp32: queries, keys and values, and the weights before dropout, what it
        # multiplied them with, and after it.
        return FP32 * tokens * (3 * d + 3 * shape.n_heads * step.seq_len) + size * tokens * d + besides
    is_copied = positions_of(arch) == "rotary" or arch.qk_norm
    amount = size * tokens * (d + 2 * kv + (d + kv if is_copied else 0) + d + (d if is_copied else 0))
    mask = 0 if _shares_mask(arch, step) else size * _mask_numbers(shape, arch, step)
    return amount + FP32 * tokens * shape.n_heads + mask + besides


def _capped_score_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Results of tanh and softmax, the dropped scores and those that are left, in fp32; in 16 bits a copy of
    the last.
    """
    copies = FP32 * (2 + (1 if arch.dropout_attention else 0))
    copies += step.product_bytes if arch.dropout_attention or step.precision != "fp32" else 0
    return copies * step.tokens * shape.n_heads * step.seq_len


def _recurrence_saved_bytes(shape: Shape, step: StepSizes) -> int:
    """Gates; states in fp32, and their copy for the output product; starts of documents."""
    d, tokens = shape.d_model, step.tokens
    copy = 0 if step.precision == "fp32" else step.product_bytes * tokens * d
    starts = tokens if step.masks_documents else 0
    return step.product_bytes * tokens * 2 * d + FP32 * tokens * d + copy + starts


def _qk_norm_saved_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    if not arch.qk_norm:
        return 0
    # What norms read in fp32 is a part of the tensor of all three, kept already.
    copies = (0 if step.on_gpu else 1) + (0 if step.precision == "fp32" else 1)
    return FP32 * step.tokens * (shape.n_heads + shape.n_kv_heads) * (copies * shape.head_dim + 1)


def feed_forward_saved_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    size, tokens = step.product_bytes, step.tokens * feed_forwards_per_token(arch)
    inner = size * tokens * activation_costs(arch.activation).kept * shape.ffn_hidden
    if arch.n_experts is None:
        return inner
    # Tokens in the order of experts, the results, their weights; the orders there and back.
    orders = 4 * INT64 + 2 * FP32
    return inner + tokens * (size * 2 * shape.d_model + orders) + 2 * FP32 * step.tokens * arch.n_experts


def _shares_mask(arch: Arch, step: StepSizes) -> bool:
    """Whether all blocks share one mask: that of ALiBi in fp32."""
    return positions_of(arch) == "alibi" and step.precision == "fp32"


def _document_table_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Tables of the rotation, for queries and for keys, if positions start at 0 in each document."""
    if not step.masks_documents or positions_of(arch) != "rotary":
        return 0
    return 2 * FP32 * step.tokens * shape.rotary_dim


def _mask_numbers(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Places in the mask of attention, 0 if torch's own mask is used."""
    if arch.family in RECURRENT:
        return 0
    is_windowed = arch.window is not None and arch.window < step.seq_len
    if not (is_windowed or step.masks_documents or positions_of(arch) == "alibi"):
        return 0
    heads = shape.n_heads if positions_of(arch) == "alibi" else 1
    return heads * step.seq_len * (step.tokens if step.masks_documents else step.seq_len)


def mask_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """The mask and the positions, which a checkpointed block keeps."""
    size = FP32 if positions_of(arch) == "alibi" else 1
    return size * _mask_numbers(shape, arch, step) + (INT64 * step.tokens if step.masks_documents else 0)
