"""Bytes that training holds of a model by phase, by formula. No torch; tests compare it with the real model.

`memory_saved` has what autograd saves, `memory_loss` what the loss keeps; this module adds the temporaries at
the worst moment of the backward pass, and the holes that tensors leave in the heap.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from conf.schema import Arch, Model
from memory.estimate.constants import HEAP_PIECE, HEAP_SHARE, HEAP_SHARE_LOSS, HEAP_SHARE_RECOMPUTED
from memory.estimate.estimate import AFTER_FIRST_STEP, ALWAYS, COMPILE_EVALUATION, Part
from models.costs.memory_loss import evaluation_loss_bytes, is_whole, loss_kept_bytes, loss_peak_bytes
from models.costs.memory_lstm import layer_backward_bytes, layer_evaluation_bytes, layer_untouched_bytes
from models.costs.memory_saved import (
    block_saved_bytes,
    feed_forward_saved_bytes,
    feed_forwards_per_token,
    final_norm_saved_bytes,
    is_gated,
    mask_bytes,
    saved_bytes,
)
from models.costs.memory_sizes import FP32, StepSizes
from models.options.activations import activation_costs
from models.options.counts import block_matrices, count_parameters
from models.options.recomputed import recomputed_blocks
from models.options.shape import Shape, positions_of, resolve_shape

IN_RECURRENCE = 12
"""Tensors of d_model in fp32 that exist together in the backward pass through the scan of a minGRU."""

CAPPED_SCORES = 3
"""Tensors of all scores in fp32 that capped attention holds at once, backward and without gradients."""

ALLOCATOR = "allocator"

__all__ = ["StepSizes", "model_parts", "saved_bytes"]


def model_parts(
    model: Model, arch: Arch, vocab_size: int, max_positions: int, step: StepSizes
) -> Iterator[Part]:
    """Parameters, gradients, activations, logits, temporaries of the backward pass, and holes in the heap.

    Raises:
        UserError: as `resolve_shape`.
    """
    shape = resolve_shape(model, arch)
    parameters = FP32 * count_parameters(model, arch, vocab_size, max_positions).total
    hidden = FP32 * step.tokens * shape.d_model
    head = FP32 * vocab_size * shape.d_model

    part = partial(Part.on, step.on_gpu)
    yield part("parameters", parameters + _position_table_bytes(shape, arch, max_positions), *ALWAYS)
    yield part("gradients", parameters, "backward_end", "optimizer_step")
    if step.accumulates or step.keeps_gradients:
        yield part("gradients", parameters, "forward", "loss", "backward")
    saved = saved_bytes(model, arch, step)
    activations = saved + hidden - _untouched_bytes(shape, arch, step)
    yield part("activations", activations, "forward", "loss", "backward")
    kept = loss_kept_bytes(shape, arch, vocab_size, step)
    yield part("logits and loss", kept, "loss")
    yield part("logits and loss", loss_peak_bytes(shape, arch, vocab_size, step) - kept, "loss", in_turn=True)
    yield part("logits and loss", head + hidden, "backward")  # gradients of the head and of the hidden states
    yield part("backward pass", _block_backward_bytes(shape, arch, step), "backward")
    # The head's gradient waits for the embedding's; then their sum is a third matrix. With gradients of an
    # earlier micro-batch there is one more.
    waiting = (2 if arch.tied_head or step.accumulates else 0) * head
    waiting += head if arch.tied_head and step.accumulates else 0
    yield part("backward pass", waiting + 2 * hidden, "backward_end")
    evaluated = _evaluation_bytes(shape, arch, step)
    logits = hidden + evaluation_loss_bytes(shape, arch, vocab_size, step)
    yield part("activations" if evaluated > logits else "logits and loss", max(evaluated, logits), "evaluate")
    if not step.on_gpu:
        holes = _heap_hole_bytes(shape, arch, vocab_size, step, saved)
        yield Part(ALLOCATOR, holes, when=(*AFTER_FIRST_STEP, COMPILE_EVALUATION))


def _heap_hole_bytes(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes, saved: int) -> int:
    """Bytes of the holes that tensors leave in glibc's heap when they are freed."""
    head, logits = FP32 * vocab_size * shape.d_model, FP32 * vocab_size * step.tokens
    share = _heap_share(shape, arch, step)
    of_head = 2 * head if head <= HEAP_PIECE.value else 0  # its gradient comes and goes in the heap as well
    holes = HEAP_SHARE.value * (share * saved + of_head)
    if share:  # larger tensors between small ones leave half as much
        again = _recomputed_blocks(shape, step) * block_saved_bytes(shape, arch, step)
        holes += HEAP_SHARE_RECOMPUTED.value * again * (1 + share) / 2
    if is_whole(step) and min(head, logits) <= HEAP_PIECE.value:
        small_logits = min(head, logits) if logits <= HEAP_PIECE.value else 0
        holes += HEAP_SHARE_LOSS.value * (min(head, HEAP_PIECE.value) + small_logits)
    return int(holes)


def _position_table_bytes(shape: Shape, arch: Arch, max_positions: int) -> int:
    """Buffers of the positions: cosines and sines of half a head each, a row of d_model, or slopes."""
    kind = positions_of(arch)
    if kind == "rotary":
        return FP32 * max_positions * shape.rotary_dim
    if kind == "alibi":
        return FP32 * shape.n_heads
    return FP32 * max_positions * shape.d_model if kind == "sinusoidal" else 0


def _recomputed_blocks(shape: Shape, step: StepSizes) -> int:
    return recomputed_blocks(step.activation_checkpointing, shape.n_layers)


def _untouched_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Bytes that are saved and take no memory before the backward pass."""
    if arch.family != "lstm" or step.on_gpu:
        return 0
    return (shape.n_layers - _recomputed_blocks(shape, step)) * layer_untouched_bytes(shape, step)


def _heap_share(shape: Shape, arch: Arch, step: StepSizes) -> float:
    """Share of a block's saved bytes in tensors that are small enough for the allocator's heap.

    None of an LSTM: its workspaces are of one size, and the next step finds room where they were.
    """
    d, size = shape.d_model, step.product_bytes
    if arch.family == "lstm" or FP32 * step.tokens * d > HEAP_PIECE.value:
        return 0.0
    widths = [
        (shape.ffn_hidden * feed_forwards_per_token(arch), activation_costs(arch.activation).kept),
        (2 * d if arch.family == "mingru" else d + 2 * shape.kv_dim, 1),
        (shape.n_heads * step.seq_len, 2 if arch.attention_softcap is not None else 0),
    ]
    numbers = sum(width * count for width, count in widths if size * step.tokens * width > HEAP_PIECE.value)
    whole = block_saved_bytes(shape, arch, step)
    return (whole - size * step.tokens * numbers) / whole


def _block_backward_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Peak of a block's backward pass beyond all that is saved.

    The final norm has freed its part by then. In the feed-forward part the gradients of its inner tensors
    exist together. A checkpointed block is computed again before. If a block's parameters are more than it
    saves, memory grows during the backward pass, and the worst block is the last.
    """
    again = _recomputed_blocks(shape, step)
    plain = shape.n_layers - again
    stream, saved = FP32 * step.tokens * shape.d_model, block_saved_bytes(shape, arch, step)
    worst = _block_worst_bytes(shape, arch, step) - final_norm_saved_bytes(shape, arch, step)
    if _untouched_bytes(shape, arch, step):
        worst += layer_untouched_bytes(shape, step)
    new = 0 if step.accumulates else FP32 * block_matrices(shape, arch)
    moments = []
    if plain:
        moments.append(max(worst, 2 * stream) + (plain - 1) * max(0, new - saved))
    if again:  # after the plain ones, which have freed what they saved
        grown = plain * (new - saved) + (again - 1) * max(0, new - stream)
        moments.append(max(worst + saved - stream, 2 * stream) + grown)
    return max(moments)


def _block_worst_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Gradients and their operands that exist together in one part of a block."""
    if arch.family == "lstm":
        return layer_backward_bytes(shape, step)
    d, size = shape.d_model, step.product_bytes
    # Experts come one after the other, each with its share of the tokens; on a GPU they come together.
    together = arch.n_experts or 1 if step.on_gpu else 1
    tokens = step.tokens * feed_forwards_per_token(arch) * together // (arch.n_experts or 1)
    inner = size * tokens * activation_costs(arch.activation).gradients * shape.ffn_hidden
    matrix = (FP32 + (0 if step.precision == "fp32" else size)) * d * shape.ffn_hidden * together
    mixing, scores = 0, FP32 * step.tokens * shape.n_heads * step.seq_len
    if arch.family == "mingru":
        mixing = IN_RECURRENCE * FP32 * step.tokens * d
    elif arch.attention_softcap is not None:
        mixing = CAPPED_SCORES * scores
    elif arch.dropout_attention:
        mixing = 3 * scores
    # by then the feed-forward part has freed what it saved
    after = mixing + matrix - feed_forward_saved_bytes(shape, arch, step) if mixing else 0
    return max(inner + matrix, after)


def _evaluation_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """The residual stream, its norm, and the inner tensors of one feed-forward part."""
    if arch.family == "lstm":
        return layer_evaluation_bytes(shape, step)
    inner = 4 if is_gated(arch) else 2
    width = (
        FP32 * 3 * shape.d_model
        + step.product_bytes * inner * shape.ffn_hidden * feed_forwards_per_token(arch)
    )
    whole = step.tokens * width + mask_bytes(shape, arch, step)
    if arch.attention_softcap is None:
        return whole
    scores = CAPPED_SCORES * FP32 * step.tokens * shape.n_heads * step.seq_len
    return max(whole, scores + FP32 * 5 * step.tokens * shape.d_model)
