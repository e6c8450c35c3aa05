"""What training holds of a model, tensor by tensor, by formula. No torch; tests hold it to the real model.

The formulas follow the code beside this file: which tensors autograd saves in a block, what the loss
keeps, what exists for a moment at the worst place of the backward pass. Amounts are of tensors; what an
allocator adds is known elsewhere (`memory.constants`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from conf.schema import Arch, Model
from memory.constants import HEAP_PIECE
from memory.estimate import ALWAYS, Part
from models.counts import FEED_FORWARD_MATRICES, count_parameters
from models.loss_chunk import WHOLE_COPIES
from models.shape import Shape, resolve_shape

FP32, BF16, INT64 = 4, 2, 8
GATED = ("swiglu",)
SAVES_ITS_INPUT = ("swiglu", "gelu", "silu")
"""Activations whose gradient is computed from their input; that of relu from its result."""

COMPILED_SHARE = 0.85
"""Of what a block saves eagerly, the part that torch.compile keeps: it computes the cheap rest again
(measured by benchmarks/memory_constants.py)."""


@dataclass(frozen=True)
class StepSizes:
    """How a step is computed.

    micro_batch: windows at once. precision: fp32, or bf16 for products under autocast. loss_chunk: tokens
    whose logits exist at once. accumulates: a step has several micro-batches. masks_documents: windows come
    with positions that begin anew. by_source: losses of a mixture are wanted token by token. on_gpu:
    parameters and activations are there, not on the host.
    """

    micro_batch: int
    seq_len: int
    precision: str
    loss_chunk: int
    activation_checkpointing: bool = False
    compiled: bool = False
    accumulates: bool = False
    masks_documents: bool = False
    by_source: bool = False
    on_gpu: bool = False

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.seq_len

    @property
    def product_bytes(self) -> int:
        """Of one number that comes out of a matrix product."""
        return FP32 if self.precision == "fp32" else BF16


def saved_bytes(model: Model, arch: Arch, step: StepSizes) -> int:
    """What autograd saves from the embedding to the last hidden states, parameters and buffers left out.

    Raises:
        UserError: as `resolve_shape`.
    """
    shape = resolve_shape(model, arch)
    ids = INT64 * step.tokens
    if step.activation_checkpointing:
        inputs = FP32 * step.tokens * shape.d_model * shape.n_layers
        return ids + inputs + _masks_alive(step) + _saved_of_final_norm(shape, arch, step)
    blocks = shape.n_layers * _saved_of_block(shape, arch, step)
    if step.compiled:
        blocks = int(COMPILED_SHARE * blocks)
    return ids + blocks + _saved_of_final_norm(shape, arch, step)


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
    if step.accumulates:
        yield part("gradients", parameters, "forward", "loss", "backward")
    saved, again = saved_bytes(model, arch, step), _saved_of_block(shape, arch, step)
    in_heap = _heap_share(shape, arch, step)
    # The gradient of a small head comes and goes in the heap as well.
    of_head = 2 * head if head <= HEAP_PIECE.value else 0
    yield replace(
        part("activations", saved + hidden, "forward", "loss", "backward"),
        heap_bytes=0 if step.on_gpu else int(in_heap * saved) + of_head,
        churned_bytes=0 if step.on_gpu or not step.activation_checkpointing else int(in_heap * again),
    )
    yield part("logits and loss", _loss_peak(shape, vocab_size, step), "loss")
    yield part("logits and loss", head + hidden, "backward")  # gradients of the head and of the hidden states
    yield part("backward pass", _back_through_block(shape, arch, step), "backward")
    # The head's gradient waits for the embedding's; then their sum is a third matrix.
    # Beside gradients of an earlier micro-batch there is one more.
    waiting = (2 if arch.tied_head or step.accumulates else 0) * head
    waiting += head if arch.tied_head and step.accumulates else 0
    yield part("backward pass", waiting + 2 * hidden, "backward_end")
    evaluated = _forward_without_gradients(shape, arch, step)
    logits = hidden + _loss_of_evaluation(shape, vocab_size, step)
    yield part("activations" if evaluated > logits else "logits and loss", max(evaluated, logits), "evaluate")


def _tables(shape: Shape, arch: Arch, max_positions: int) -> int:
    """Buffers of the positions: cosines and sines of half a head each, or a row of d_model."""
    if arch.positions == "rotary":
        return FP32 * max_positions * shape.head_dim
    return FP32 * max_positions * shape.d_model if arch.positions == "sinusoidal" else 0


def _saved_of_norm(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Its input and, of RMS on a CPU, the input over its root; and a scalar or two a token."""
    if arch.norm == "layer":
        return FP32 * step.tokens * (shape.d_model + 2)
    copies = 1 if step.on_gpu else 2
    return FP32 * step.tokens * (copies * shape.d_model + 1)


def _saved_of_final_norm(shape: Shape, arch: Arch, step: StepSizes) -> int:
    return _saved_of_norm(shape, arch, step) if arch.norm_position == "pre" else 0


def _saved_of_block(shape: Shape, arch: Arch, step: StepSizes) -> int:
    d, hidden, tokens, size = shape.d_model, shape.ffn_hidden, step.tokens, step.product_bytes
    norms = 2 * _saved_of_norm(shape, arch, step)
    inputs = size * tokens * 2 * d  # of the first products of attention and of feed-forward
    # Queries, keys and values as one tensor, which the values keep; turned queries and keys; the result, and
    # a copy of it in the order of the output product where rotation changed the layout; a number a head.
    rotary = arch.positions == "rotary"
    attention = size * tokens * (3 * d + (2 * d if rotary else 0) + d + (d if rotary else 0))
    attention += FP32 * tokens * shape.n_heads
    feed_forward = size * tokens * _kept_in_feed_forward(arch) * hidden
    copies = size * _matrices(shape, arch) if step.precision != "fp32" else 0  # of the weights, by autocast
    return norms + inputs + attention + feed_forward + copies + _saved_for_documents(shape, arch, step)


def _kept_in_feed_forward(arch: Arch) -> int:
    """Of the hidden width: gate and up, silu and product; or what the activation saves, and its result."""
    if arch.activation in GATED:
        return 4
    return 2 if arch.activation in SAVES_ITS_INPUT else 1


def _heap_share(shape: Shape, arch: Arch, step: StepSizes) -> float:
    """Of what is saved, the part in tensors that are small enough for the allocator's heap."""
    d, hidden, size = shape.d_model, shape.ffn_hidden, step.product_bytes
    inner = 2 * hidden if arch.activation in GATED else hidden
    widths = [(inner, 1), (hidden, _kept_in_feed_forward(arch) - inner // hidden), (3 * d, 1)]
    mapped = sum(
        size * step.tokens * width * count
        for width, count in widths
        if size * step.tokens * width > HEAP_PIECE.value
    )
    whole = _saved_of_block(shape, arch, step)
    if FP32 * step.tokens * d > HEAP_PIECE.value:
        return 0.0
    return (whole - mapped) / whole


def _matrices(shape: Shape, arch: Arch) -> int:
    """Numbers in the matrices of a block."""
    d = shape.d_model
    return 4 * d * d + FEED_FORWARD_MATRICES[arch.activation] * d * shape.ffn_hidden


def _saved_for_documents(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """The mask as numbers, and the rotation's tables by position for queries and for keys."""
    if not step.masks_documents:
        return 0
    mask = step.product_bytes * step.tokens * step.seq_len
    tables = 2 * FP32 * step.tokens * shape.head_dim if arch.positions == "rotary" else 0
    return mask + tables


def _masks_alive(step: StepSizes) -> int:
    """The boolean mask and the positions, which a checkpointed block keeps."""
    return step.tokens * (step.seq_len + INT64) if step.masks_documents else 0


def _back_through_block(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """What a block on the way back takes beyond all that is saved, at its worst moment.

    The final norm has given its part back by then; in the feed-forward part the gradients of its inner
    tensors are there together. A checkpointed block is computed again before. Where a block's parameters
    are more than what it saves, memory grows on the way back, and the worst block is the last.
    """
    d, hidden, size = shape.d_model, shape.ffn_hidden, step.product_bytes
    widths = 1 if arch.activation in SAVES_ITS_INPUT and arch.activation not in GATED else 2
    inner = size * step.tokens * widths * hidden
    matrix = (FP32 + (0 if step.precision == "fp32" else size)) * d * hidden
    again = 0
    if step.activation_checkpointing:
        again = _saved_of_block(shape, arch, step) - FP32 * step.tokens * d
    returned = _saved_of_final_norm(shape, arch, step)
    given_back = (
        FP32 * step.tokens * d if step.activation_checkpointing else _saved_of_block(shape, arch, step)
    )
    new = 0 if step.accumulates else FP32 * _matrices(shape, arch)
    grown = (shape.n_layers - 1) * max(0, new - given_back)
    return max(inner + matrix + again - returned, 2 * FP32 * step.tokens * d) + grown


def _is_whole(step: StepSizes) -> bool:
    return step.tokens <= step.loss_chunk


def _loss_peak(shape: Shape, vocab_size: int, step: StepSizes) -> int:
    """From the logits to the gradients of the head and of the hidden states, at its worst moment."""
    d, size = shape.d_model, step.product_bytes
    is_fp32 = step.precision == "fp32"
    if _is_whole(step):
        casts = 0 if is_fp32 else size * (vocab_size * d + step.tokens * d)
        return WHOLE_COPIES * FP32 * step.tokens * vocab_size + casts
    logits = FP32 * step.loss_chunk * vocab_size
    kept = FP32 * d * (vocab_size + step.tokens)
    if is_fp32:
        # torch's makes zeros for the gradients of its own results as the way back begins.
        return kept + max(logits, 0 if step.on_gpu else kept)
    # On a CPU a product of 16 bits takes its operands and its result in fp32 besides.
    inside = 0 if step.on_gpu else FP32 * vocab_size * (step.loss_chunk + d)
    # The logits in 16 bits, the weight, and its gradient before it is added.
    return kept + logits + size * (step.loss_chunk * vocab_size + 2 * vocab_size * d) + inside


def _loss_of_evaluation(shape: Shape, vocab_size: int, step: StepSizes) -> int:
    """Logits and their log-softmax, or one chunk of logits."""
    size = 0 if step.precision == "fp32" else step.product_bytes
    weight = size * vocab_size * shape.d_model
    if _is_whole(step):
        return 2 * FP32 * step.tokens * vocab_size + weight
    return (FP32 + size) * step.loss_chunk * vocab_size + weight


def _forward_without_gradients(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """The residual stream, its norm, and the inner tensors of one feed-forward part."""
    inner = 4 if arch.activation in GATED else 2
    width = FP32 * 3 * shape.d_model + step.product_bytes * inner * shape.ffn_hidden
    return step.tokens * width + _masks_alive(step)
