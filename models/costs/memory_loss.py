"""Bytes that the loss of a model holds, by formula. No torch; tests compare it with the real one."""

from __future__ import annotations

from conf.schema import Arch
from models.costs.memory_sizes import FP32, StepSizes
from models.loss.loss_chunk import WHOLE_COPIES, has_triton, padded_vocab, width_at_once
from models.options.shape import Shape


def is_whole(step: StepSizes) -> bool:
    """Whether the loss is ordinary cross-entropy: on a CPU, with the logits of all tokens in one chunk."""
    return not step.on_gpu and step.tokens <= step.loss_chunk


def loss_peak_bytes(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes) -> int:
    """Peak from the logits to the gradients of the head and of the hidden states."""
    d, size = shape.d_model, step.product_bytes
    is_fp32 = step.precision == "fp32"
    kept = loss_kept_bytes(shape, arch, vocab_size, step)
    if step.on_gpu:
        logits, others = _logits_on_gpu(shape, arch, vocab_size, step)
        # The weight's gradient as it comes out of a product, of all members.
        return kept + logits + max(others, step.members * size * padded_vocab(vocab_size) * d)
    # A soft-cap keeps the slopes of its logits; a z-loss makes exponents, and a gradient of its own.
    if is_whole(step):
        casts = 0 if is_fp32 else size * (vocab_size * d + step.tokens * d)
        copies = WHOLE_COPIES + (1 if arch.logit_softcap else 0) + (2 if arch.z_loss else 0)
        return copies * FP32 * step.tokens * vocab_size + casts
    tile = width_at_once(vocab_size, step.loss_chunk)
    logits = FP32 * step.loss_chunk * (vocab_size + (tile if arch.logit_softcap else 0))
    if is_fp32:
        return kept + logits
    # The weight in 16 bits; the logits of a tile and the gradient of its weight, in 16 bits and in fp32.
    return kept + logits + size * vocab_size * d + (size + FP32) * tile * (step.loss_chunk + d)


def loss_kept_bytes(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes) -> int:
    """Part of `loss_peak_bytes` kept until the backward pass; an ensemble holds the rest in turn."""
    if is_whole(step):
        return FP32 * step.tokens * vocab_size
    gradients = FP32 * (shape.d_model * (vocab_size + step.tokens) + (vocab_size if arch.head_bias else 0))
    return gradients + (_weight_on_gpu(shape, vocab_size, step) if step.on_gpu else 0)


def _weight_on_gpu(shape: Shape, vocab_size: int, step: StepSizes) -> int:
    """A copy of the head's weight, padded and of the type in which it is multiplied."""
    is_used_as_it_is = step.precision == "fp32" and padded_vocab(vocab_size) == vocab_size
    return 0 if is_used_as_it_is else step.product_bytes * padded_vocab(vocab_size) * shape.d_model


def _logits_on_gpu(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes) -> tuple[int, int]:
    """Logits and 16-bit states of a chunk; and the temporaries of torch's operations, without Triton."""
    rows, is_fp32 = min(step.loss_chunk, step.tokens * step.members), step.precision == "fp32"
    logits, states = rows * padded_vocab(vocab_size), 0 if is_fp32 else rows * shape.d_model
    copies = 0 if has_triton() else 1 if is_fp32 and arch.logit_softcap is None else 2
    return step.product_bytes * (logits + states), FP32 * copies * logits


def evaluation_loss_bytes(shape: Shape, arch: Arch, vocab_size: int, step: StepSizes) -> int:
    """Logits and their log-softmax, or one chunk of logits."""
    size = 0 if step.precision == "fp32" else step.product_bytes
    weight = size * vocab_size * shape.d_model
    if step.on_gpu:
        return sum(_logits_on_gpu(shape, arch, vocab_size, step)) + _weight_on_gpu(shape, vocab_size, step)
    if is_whole(step):
        return 2 * FP32 * step.tokens * vocab_size + weight
    tile = width_at_once(vocab_size, step.loss_chunk)
    per_tile = size + (FP32 if arch.logit_softcap else 0)
    return step.loss_chunk * (FP32 * vocab_size + per_tile * tile) + weight
