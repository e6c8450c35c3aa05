"""What training holds of a model by phase, by formula. No torch; tests hold it to the real model.

What autograd saves and what the loss keeps are told beside this file; here is what exists for a moment at the
worst place of the backward pass. Amounts are of tensors; what an allocator adds is known elsewhere
(`memory.estimate.constants`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from conf.schema import Arch, Model
from memory.estimate.constants import HEAP_CHURN_DEEPER, HEAP_CHURN_MAPPED, HEAP_PIECE, HEAP_SCAN
from memory.estimate.estimate import ALWAYS, Part
from models.counts import block_matrices, count_parameters
from models.memory_loss import displaced_by_loss, loss_kept, loss_of_evaluation, loss_peak
from models.memory_lstm import (
    back_through_layer,
    forward_without_gradients,
    heap_share,
    untouched_of_layer,
)
from models.memory_saved import (
    KEPT_IN_FEED_FORWARD,
    is_gated,
    masks_alive,
    parts_of_token,
    saved_bytes,
    saved_of_block,
    saved_of_feed_forward,
    saved_of_final_norm,
)
from models.memory_sizes import FP32, StepSizes
from models.recomputed import recomputed_blocks
from models.shape import Shape, positions_of, resolve_shape

GRADIENTS_IN_FEED_FORWARD = {
    "swiglu": 2,
    "geglu": 2,
    "gelu": 1,
    "gelu_exact": 1,
    "relu": 2,
    "relu2": 3,
    "silu": 1,
}
"""Of the hidden width: gradients and what they are made of, that are there together on the way back."""

IN_RECURRENCE = 12
"""Of d_model in fp32: what the way back through the scan of a minGRU holds at once."""

CAPPED_SCORES = 3
"""Of capped attention, tensors of all scores in fp32 that are there together: on the way back, and without
gradients."""

__all__ = ["StepSizes", "model_parts", "saved_bytes"]


def model_parts(
    model: Model, arch: Arch, vocab_size: int, max_positions: int, step: StepSizes
) -> Iterator[Part]:
    """Parameters, gradients, activations, logits, and what the backward pass needs for a moment.

    Raises:
        UserError: as `resolve_shape`.
    """
    shape = resolve_shape(model, arch)
    parameters = FP32 * count_parameters(model, arch, vocab_size, max_positions).total
    hidden = FP32 * step.tokens * shape.d_model
    head = FP32 * vocab_size * shape.d_model

    def part(name: str, amount: int, *when: str) -> Part:
        return Part(name, *((0, amount) if step.on_gpu else (amount, 0)), when=when)

    yield part("parameters", parameters + _tables(shape, arch, max_positions), *ALWAYS)
    yield part("gradients", parameters, "backward_end", "optimizer_step")
    if step.accumulates or step.keeps_gradients:
        yield part("gradients", parameters, "forward", "loss", "backward")
    saved = saved_bytes(model, arch, step)
    in_heap = _heap_share(shape, arch, step)
    if arch.family == "mingru":
        in_heap *= 1 + HEAP_SCAN.value
    # The gradient of a small head comes and goes in the heap as well.
    of_head = 2 * head if head <= HEAP_PIECE.value else 0
    untouched = _untouched(shape, arch, step)
    yield replace(
        part("activations", saved + hidden - untouched, "forward", "loss", "backward"),
        heap_bytes=0 if step.on_gpu else int(in_heap * saved) + of_head,
        churned_bytes=0 if step.on_gpu else _churned(shape, arch, step),
        displaced_bytes=0 if step.on_gpu else displaced_by_loss(shape, vocab_size, step),
    )
    kept = loss_kept(shape, arch, vocab_size, step)
    yield part("logits and loss", kept, "loss")
    in_turn = loss_peak(shape, arch, vocab_size, step) - kept
    yield replace(part("logits and loss", in_turn, "loss"), in_turn=True)
    yield part("logits and loss", head + hidden, "backward")  # gradients of the head and of the hidden states
    yield part("backward pass", _back_through_block(shape, arch, step), "backward")
    # The head's gradient waits for the embedding's; then their sum is a third matrix.
    # Beside gradients of an earlier micro-batch there is one more.
    waiting = (2 if arch.tied_head or step.accumulates else 0) * head
    waiting += head if arch.tied_head and step.accumulates else 0
    yield part("backward pass", waiting + 2 * hidden, "backward_end")
    evaluated = _forward_without_gradients(shape, arch, step)
    logits = hidden + loss_of_evaluation(shape, arch, vocab_size, step)
    yield part("activations" if evaluated > logits else "logits and loss", max(evaluated, logits), "evaluate")


def _tables(shape: Shape, arch: Arch, max_positions: int) -> int:
    """Buffers of the positions: cosines and sines of half a head each, a row of d_model, or slopes."""
    kind = positions_of(arch)
    if kind == "rotary":
        return FP32 * max_positions * shape.rotary_dim
    if kind == "alibi":
        return FP32 * shape.n_heads
    return FP32 * max_positions * shape.d_model if kind == "sinusoidal" else 0


def _untouched(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Of what is saved, what takes no memory before the way back."""
    if arch.family != "lstm" or step.on_gpu:
        return 0
    plain = shape.n_layers - recomputed_blocks(step.activation_checkpointing, shape.n_layers)
    return plain * untouched_of_layer(shape, step)


def _churned(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """What a checkpointed block takes of the allocator's heap and gives back, and more for each of them."""
    blocks = recomputed_blocks(step.activation_checkpointing, shape.n_layers)
    in_heap = _heap_share(shape, arch, step, by_halves=True)
    if not blocks or not in_heap:
        return 0
    share = in_heap + HEAP_CHURN_MAPPED.value * (1 - in_heap)
    return int(share * saved_of_block(shape, arch, step) * (1 + HEAP_CHURN_DEEPER.value * blocks))


def _heap_share(shape: Shape, arch: Arch, step: StepSizes, *, by_halves: bool = False) -> float:
    """Of what is saved, the part in tensors that are small enough for the allocator's heap.

    by_halves: also the product of gate and up where its gradients, one of each, are small enough.
    """
    if arch.family == "lstm":
        return heap_share(shape, arch, step)
    d, size = shape.d_model, step.product_bytes
    hidden = shape.ffn_hidden * parts_of_token(arch)
    inner = 2 * hidden if is_gated(arch) else hidden
    are_small = is_gated(arch) and size * step.tokens * hidden < HEAP_PIECE.value
    widths = [
        (hidden, 2) if by_halves and are_small else (inner, 1),
        (hidden, KEPT_IN_FEED_FORWARD[arch.activation] - inner // hidden),
        (2 * d if arch.family == "mingru" else d + 2 * shape.kv_dim, 1),
    ]
    if arch.attention_softcap is not None:
        widths.append((shape.n_heads * step.seq_len, 2))
    mapped = sum(
        size * step.tokens * width * count
        for width, count in widths
        if size * step.tokens * width > HEAP_PIECE.value
    )
    whole = saved_of_block(shape, arch, step)
    if FP32 * step.tokens * d > HEAP_PIECE.value:
        return 0.0
    return (whole - mapped) / whole


def _back_through_block(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """What a block on the way back takes beyond all that is saved, at its worst moment.

    The final norm has given its part back by then; in the feed-forward part the gradients of its inner
    tensors are there together. A checkpointed block is computed again before. Where a block's parameters
    are more than what it saves, memory grows on the way back, and the worst block is the last.
    """
    again = recomputed_blocks(step.activation_checkpointing, shape.n_layers)
    plain = shape.n_layers - again
    stream, saved = FP32 * step.tokens * shape.d_model, saved_of_block(shape, arch, step)
    worst = _worst_in_block(shape, arch, step) - saved_of_final_norm(shape, arch, step)
    if _untouched(shape, arch, step):
        worst += untouched_of_layer(shape, step)
    new = 0 if step.accumulates else FP32 * block_matrices(shape, arch)
    moments = []
    if plain:
        moments.append(max(worst, 2 * stream) + (plain - 1) * max(0, new - saved))
    if again:  # behind the plain ones, which by then gave back what they saved
        grown = plain * (new - saved) + (again - 1) * max(0, new - stream)
        moments.append(max(worst + saved - stream, 2 * stream) + grown)
    return max(moments)


def _worst_in_block(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Gradients and what they are made of, there together in one part of a block."""
    if arch.family == "lstm":
        return back_through_layer(shape, step)
    d, size = shape.d_model, step.product_bytes
    # Experts come one after the other, each with its share of the tokens; on a GPU they come together.
    together = arch.n_experts or 1 if step.on_gpu else 1
    tokens = step.tokens * parts_of_token(arch) * together // (arch.n_experts or 1)
    inner = size * tokens * GRADIENTS_IN_FEED_FORWARD[arch.activation] * shape.ffn_hidden
    matrix = (FP32 + (0 if step.precision == "fp32" else size)) * d * shape.ffn_hidden * together
    weights = 0
    scores = FP32 * step.tokens * shape.n_heads * step.seq_len
    if arch.attention_softcap is not None:
        weights = CAPPED_SCORES * scores + matrix - saved_of_feed_forward(shape, arch, step)
    elif arch.dropout_attention:  # what is behind has been given back
        weights = 3 * scores + matrix - saved_of_feed_forward(shape, arch, step)
    if arch.family == "mingru":
        weights = IN_RECURRENCE * FP32 * step.tokens * d + matrix - saved_of_feed_forward(shape, arch, step)
    return max(inner + matrix, weights)


def _forward_without_gradients(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """The residual stream, its norm, and the inner tensors of one feed-forward part."""
    if arch.family == "lstm":
        return forward_without_gradients(shape, step)
    inner = 4 if is_gated(arch) else 2
    width = FP32 * 3 * shape.d_model + step.product_bytes * inner * shape.ffn_hidden * parts_of_token(arch)
    whole = step.tokens * width + masks_alive(shape, arch, step)
    if arch.attention_softcap is None:
        return whole
    scores = CAPPED_SCORES * FP32 * step.tokens * shape.n_heads * step.seq_len
    return max(whole, scores + FP32 * 5 * step.tokens * shape.d_model)
