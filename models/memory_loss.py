"""What the loss of a model holds, by formula. No torch; tests hold it to the real one."""

from __future__ import annotations

from conf.schema import Arch
from memory.estimate.constants import HEAP_PIECE
from models.loss_chunk import WHOLE_COPIES, has_triton, padded_vocab, width_at_once
from models.memory_sizes import FP32, StepSizes
from models.shape import Shape


def is_whole(step: StepSizes) -> bool:
    """Whether the loss is ordinary cross-entropy: on a CPU, where the logits of all tokens are one chunk."""
    return not step.on_gpu and step.tokens <= step.loss_chunk


def loss_peak(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes) -> int:
    """From the logits to the gradients of the head and of the hidden states, at its worst moment."""
    d, size = shape.d_model, step.product_bytes
    is_fp32 = step.precision == "fp32"
    if step.on_gpu:
        logits, others = _logits_on_gpu(shape, arch, vocab_size, step)
        # The weight's gradient as it comes out of a product, of all members.
        product = step.members * step.product_bytes * padded_vocab(vocab_size) * d
        return loss_kept(shape, arch, vocab_size, step) + logits + max(others, product)
    # A soft-cap keeps the slopes of its logits; a z-loss makes exponents, and a gradient of its own.
    if is_whole(step):
        casts = 0 if is_fp32 else size * (vocab_size * d + step.tokens * d)
        copies = WHOLE_COPIES + (1 if arch.logit_softcap else 0) + (2 if arch.z_loss else 0)
        return copies * FP32 * step.tokens * vocab_size + casts
    tile = width_at_once(vocab_size, step.loss_chunk)
    logits = FP32 * step.loss_chunk * (vocab_size + (tile if arch.logit_softcap else 0))
    kept = loss_kept(shape, arch, vocab_size, step)
    if is_fp32:
        return kept + logits
    # A product of 16 bits takes its operands and its result in fp32 besides.
    inside = FP32 * tile * (step.loss_chunk + d)
    # The weight in 16 bits, and of a tile the logits, and the gradient of its weight before it is added.
    return kept + logits + size * (vocab_size * d + tile * (step.loss_chunk + d)) + inside


def loss_kept(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes) -> int:
    """Of `loss_peak`, what stays for the backward pass; of runs in one process one at a time has the rest."""
    if is_whole(step):
        return FP32 * step.tokens * vocab_size
    gradients = FP32 * (shape.d_model * (vocab_size + step.tokens) + (vocab_size if arch.head_bias else 0))
    if not step.on_gpu:
        return gradients
    return gradients + _weight_on_gpu(shape, vocab_size, step)


def _weight_on_gpu(shape: Shape, vocab_size: int, step: StepSizes) -> int:
    """A copy of the head's weight: padded, and of the type in which it is multiplied."""
    is_used_as_it_is = step.precision == "fp32" and padded_vocab(vocab_size) == vocab_size
    return 0 if is_used_as_it_is else step.product_bytes * padded_vocab(vocab_size) * shape.d_model


def _logits_on_gpu(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes) -> tuple[int, int]:
    """Logits and 16-bit states of a chunk; and what torch's operations hold besides, without Triton."""
    rows, is_fp32 = min(step.loss_chunk, step.tokens * step.members), step.precision == "fp32"
    logits, states = rows * padded_vocab(vocab_size), 0 if is_fp32 else rows * shape.d_model
    copies = 0 if has_triton() else 1 if is_fp32 and arch.logit_softcap is None else 2
    return step.product_bytes * (logits + states), FP32 * copies * logits


def displaced_by_loss(shape: Shape, vocab_size: int, step: StepSizes) -> int:
    """Of a loss that is not in chunks: matrices of the vocabulary's width that come and go in the heap.

    The gradient of the head, that of the embedding and their sum, and the copies of the logits that take each
    other's places with them. A head that is larger than a piece of the heap does not come from it: nothing
    fits into the holes of smaller logits then.
    """
    head, logits = FP32 * vocab_size * shape.d_model, FP32 * vocab_size * step.tokens
    if not is_whole(step):
        return 0
    of_logits = logits if logits <= HEAP_PIECE.value else 0
    if head > HEAP_PIECE.value:
        return (WHOLE_COPIES + 1) * of_logits
    return 3 * head + WHOLE_COPIES * min(head, of_logits)


def loss_of_evaluation(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes) -> int:
    """Logits and their log-softmax, or one chunk of logits."""
    size = 0 if step.precision == "fp32" else step.product_bytes
    weight = size * vocab_size * shape.d_model
    if step.on_gpu:
        return sum(_logits_on_gpu(shape, arch, vocab_size, step)) + _weight_on_gpu(shape, vocab_size, step)
    if is_whole(step):
        return 2 * FP32 * step.tokens * vocab_size + weight
    tile = width_at_once(vocab_size, step.loss_chunk)
    of_tile = size + (FP32 if arch.logit_softcap else 0)
    return step.loss_chunk * (FP32 * vocab_size + of_tile * tile) + weight
