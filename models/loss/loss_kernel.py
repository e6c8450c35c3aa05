"""Cross-entropy of rows of logits as one Triton kernel, which writes the gradients over the logits.

A row is read twice, by one program: for the maximum and the sum of the exponents (the online softmax of
Milakov and Gimelshein, arXiv:1805.02867), then for the gradients. Import it only where Triton is installed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_COLUMNS = 16_384
"""Columns that a program reads at a time: with these few programs share a multiprocessor, and their rows stay
in the L2 cache for the second pass."""


@triton.jit
def _capped(x, softcap):  # type: ignore[no-untyped-def]
    return softcap * (2 * tl.sigmoid(2 * x / softcap) - 1)  # softcap * tanh(x / softcap)


@triton.jit
def _cross_entropy(  # type: ignore[no-untyped-def]
    logits, labels, losses, stride, vocab, ignored, softcap, z_loss,
    CAPS: tl.constexpr, GRADIENT: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    # Whole rows are read and written, padding included: masks of a multiple of 16 columns keep accesses wide.
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    label = tl.load(labels + row)
    columns = tl.arange(0, COLUMNS)
    if label == ignored:
        tl.store(losses + row, 0.0)
        if GRADIENT:
            for first in range(0, stride, COLUMNS):
                tl.store(logits + first + columns, 0.0, mask=first + columns < stride)
        return
    target = tl.load(logits + label).to(tl.float32)
    if CAPS:
        target = _capped(target, softcap)
    top = float("-inf")
    total = 0.0
    for first in range(0, stride, COLUMNS):
        at = first + columns
        x = tl.load(logits + at, mask=at < stride, other=0.0).to(tl.float32)
        if CAPS:
            x = _capped(x, softcap)
        x = tl.where(at < vocab, x, float("-inf"))
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), 0)
        top = higher
    log_z = top + tl.log(total)
    tl.store(losses + row, log_z - target)
    if GRADIENT:
        factor = 1 + 2 * z_loss * log_z
        for first in range(0, stride, COLUMNS):
            at = first + columns
            x = tl.load(logits + at, mask=at < stride, other=0.0).to(tl.float32)
            if CAPS:
                x = _capped(x, softcap)
            found = factor * tl.exp(x - log_z) - tl.where(at == label, 1.0, 0.0)
            if CAPS:
                found *= 1 - (x / softcap) * (x / softcap)
            found = tl.where(at < vocab, found, 0.0)
            tl.store(logits + at, found.to(logits.dtype.element_ty), mask=at < stride)


def cross_entropy_(
    logits: Tensor, labels: Tensor, ignored: int, softcap: float | None, z_loss: float, gradient: bool
) -> Tensor:
    """Loss of each row, fp32 (rows,); see `models.loss.device_loss.cross_entropy_`.

    What is between the end of a row and the next one is overwritten with zeros.
    """
    rows, vocab_size = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    columns = min(MOST_COLUMNS, triton.next_power_of_2(vocab_size))
    _cross_entropy[(rows,)](
        logits, labels, losses, logits.stride(0), vocab_size, ignored, softcap or 0.0, z_loss,
        CAPS=softcap is not None, GRADIENT=gradient, COLUMNS=columns,
        num_warps=max(4, min(32, columns // 512)),
    )  # fmt: skip
    return losses
