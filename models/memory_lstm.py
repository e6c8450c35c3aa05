"""What a layer of an LSTM holds, by formula. No torch; tests hold it to the real one.

Its kernel is one operation to autograd, which keeps a workspace that only the kernel can read. On a CPU the
recurrence is in fp32 whatever the precision.
"""

from __future__ import annotations

from conf.schema import Arch
from memory.estimate.constants import HEAP_PIECE
from models.counts import MATRICES_OF_LSTM
from models.memory_sizes import FP32, StepSizes, saved_of_norm
from models.shape import Shape

WORKSPACE = 15.5
"""Numbers for each of the width and each token that the kernel keeps: gates, states and the room for their
gradients (oneDNN's, measured over widths 32 to 256)."""

TOUCHED = 9.5
"""Of these, what the way forward writes to: of new pages the rest takes no memory before the way back
(measured over widths 96 to 192)."""
NEW_PAGES_BYTES = 24 << 20
"""A workspace up to this size is where one was before, all of whose pages were written to."""


def saved_of_layer(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Its output in the order of time, its input where that is not the output before, the workspace, and the
    states before and behind; the norm, what is dropped.
    """
    d = shape.d_model
    wide = FP32 * step.tokens * d
    rows = FP32 * step.micro_batch * d
    amount = saved_of_norm(d, arch.norm, step) + int(WORKSPACE * wide) + 3 * rows
    amount += wide if is_handed_on(arch) else 2 * wide
    if arch.dropout_residual:
        amount += rows if arch.dropout_locked else wide
    if arch.dropout_recurrent:
        amount += 2 * recurrent_weight(shape)  # what was drawn, and the weight behind it
    return amount


def untouched_of_layer(shape: Shape, step: StepSizes) -> int:
    """Of the workspace, what takes no memory before the way back."""
    wide = FP32 * step.tokens * shape.d_model
    return int(max(0, WORKSPACE * wide - max(TOUCHED * wide, NEW_PAGES_BYTES)))


def is_handed_on(arch: Arch) -> bool:
    """Whether what a layer gives is what the layer behind it, or the norm between them, would save."""
    return not arch.lstm_residual and not arch.dropout_residual


def saved_before_layers(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """The input of the first of layers that hand theirs on, where no norm has saved it."""
    if arch.norm != "none" or not is_handed_on(arch):
        return 0
    return FP32 * step.tokens * shape.d_model


def recurrent_weight(shape: Shape) -> int:
    """Bytes of the matrix from states to gates."""
    return FP32 * MATRICES_OF_LSTM // 2 * shape.d_model**2


def heap_share(shape: Shape, arch: Arch, step: StepSizes) -> float:
    """Of what is saved, the part in tensors that leave holes in the allocator's heap. The workspaces, most of
    it, are all of one size and follow each other: the next step finds room where they were.
    """
    wide = FP32 * step.tokens * shape.d_model
    if wide > HEAP_PIECE.value:
        return 0.0
    whole = saved_of_layer(shape, arch, step)
    return (whole - int(WORKSPACE * wide)) / whole


def back_through_layer(shape: Shape, step: StepSizes) -> int:
    """Gradients of what came in and went out, in both orders, and of the matrices before they are added."""
    matrices = FP32 * MATRICES_OF_LSTM * shape.d_model**2
    return 3 * FP32 * step.tokens * shape.d_model + (matrices if step.accumulates else 0)


def forward_without_gradients(shape: Shape, step: StepSizes) -> int:
    """The residual stream, its norm, and the output, with their copies in the order of time."""
    return 5 * FP32 * step.tokens * shape.d_model
