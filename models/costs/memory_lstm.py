"""Bytes that a layer of an LSTM holds, by formula. No torch; tests compare it with the real one.

Its kernel is one operation for autograd, which keeps a workspace that only the kernel can read. On a CPU the
recurrence is in fp32 whatever the precision.
"""

from __future__ import annotations

from conf.schema import Arch
from models.costs.memory_sizes import FP32, StepSizes, norm_saved_bytes
from models.options.counts import MATRICES_OF_LSTM
from models.options.shape import Shape

WORKSPACE = 15.5
"""Numbers per unit of width and token in the kernel's workspace: gates, states and room for their gradients
(oneDNN's, measured over widths 32 to 256)."""
TOUCHED = 9.5
"""The part of these that the forward pass writes. New pages that are not written take no memory before the
backward pass (measured over widths 96 to 192)."""
REUSED_PAGES_BYTES = 28 << 20
"""A workspace up to this size reuses the place of an earlier one, all of whose pages were written."""


def layer_saved_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Bytes of its output in the order of time, its input unless that is the output before, the workspace,
    the states before and after, the norm, and what dropout keeps."""
    wide, rows = _wide_bytes(shape, step), FP32 * step.micro_batch * shape.d_model
    amount = norm_saved_bytes(shape.d_model, arch.norm, step) + int(WORKSPACE * wide) + 3 * rows
    amount += wide if _shares_input(arch) else 2 * wide
    if arch.dropout_residual:
        amount += rows if arch.dropout_locked else wide
    if arch.dropout_recurrent:  # the drawn mask and the masked matrix from states to gates
        amount += FP32 * MATRICES_OF_LSTM * shape.d_model**2
    return amount


def layer_untouched_bytes(shape: Shape, step: StepSizes) -> int:
    """Bytes of the workspace that take no memory before the backward pass."""
    wide = _wide_bytes(shape, step)
    return int(max(0, WORKSPACE * wide - max(TOUCHED * wide, REUSED_PAGES_BYTES)))


def input_saved_bytes(shape: Shape, arch: Arch, step: StepSizes) -> int:
    """Bytes of the first layer's input, if no norm has saved it."""
    return _wide_bytes(shape, step) if arch.norm == "none" and _shares_input(arch) else 0


def layer_backward_bytes(shape: Shape, step: StepSizes) -> int:
    """Bytes of the gradients of input and output, in both orders, and of the matrices to be added."""
    matrices = FP32 * MATRICES_OF_LSTM * shape.d_model**2
    return 3 * _wide_bytes(shape, step) + (matrices if step.accumulates else 0)


def layer_evaluation_bytes(shape: Shape, step: StepSizes) -> int:
    """Bytes of the residual stream, its norm and the output, with their copies in the order of time."""
    return 5 * _wide_bytes(shape, step)


def _wide_bytes(shape: Shape, step: StepSizes) -> int:
    return FP32 * step.tokens * shape.d_model


def _shares_input(arch: Arch) -> bool:
    """Whether a layer's input is a tensor that the layer before it, or its norm, has saved."""
    return not arch.lstm_residual and not arch.dropout_residual
