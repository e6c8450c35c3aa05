"""The loss of a language model, without the logits of all tokens ever being in memory.

One face, three ways below it, chosen by rule and never by a silent fallback:

- as many tokens as a chunk or fewer: ordinary cross-entropy; its logits are one chunk;
- fp32 on a CPU, where tests hold its loss, gradients and memory: torch's `linear_cross_entropy`;
- else (autocast, 16-bit inputs, a GPU, a torch without it): `models.chunked_loss`. torch's gives a
  loss in the dtype of its inputs, in bf16 with steps of 0.06, and knows no autocast.
"""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.chunked_loss import ChunkedCrossEntropy

IGNORED = -100
"""The label of a position that has no target."""

REDUCTIONS = ("mean", "sum")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TORCH_HAS_IT = hasattr(F, "linear_cross_entropy") and hasattr(nn, "LinearCrossEntropyOptions")


def loss_implementation(device: str = "cpu", precision: str = "fp32") -> str:
    """What computes the loss where tokens are more than a chunk, for the record of a run."""
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    return (
        "torch.nn.functional.linear_cross_entropy" if _torch_serves(device, dtype) else "models.chunked_loss"
    )


def lm_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    chunk: int,
    reduction: str = "mean",
    of_tokens: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of `softmax(hidden @ weight.T)` against labels, in nats; gradients for both.

    Of logits (tokens, vocab) no more than `chunk` rows exist at once.

    hidden: (..., d_model). weight: (vocab, d_model). Both fp32 or both of one 16-bit type; under
        autocast the products are in its type, as those of `F.linear` would be.
    labels: int64 (...); -100 is ignored.
    reduction: mean over the labels not ignored (nan where there is none), or sum.
    of_tokens: fp32, of the shape of labels: gets the loss of each, 0 where it is ignored. Without it the loss
        is summed in another order, so its last bits are others.
    Returns: a scalar in fp32, whatever the inputs.

    Raises:
        ValueError, TypeError: arguments that no way serves.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is {reduction!r}, expected one of {', '.join(REDUCTIONS)}")
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}, expected a positive number of tokens")
    if labels.dtype != torch.int64 or labels.shape != hidden.shape[:-1]:
        raise TypeError(
            f"labels are {labels.dtype} {tuple(labels.shape)}, expected int64 {tuple(hidden.shape[:-1])}"
        )
    hidden, labels = hidden.reshape(-1, hidden.shape[-1]), labels.flatten()
    dtype = _product_dtype(hidden, weight)
    if of_tokens is not None:
        return _with_losses(hidden, weight, labels, chunk, reduction, dtype, of_tokens.view(-1))
    if len(labels) <= chunk:
        return _whole(hidden, weight, labels, reduction)
    if _torch_serves(hidden.device.type, dtype):
        return _torchs(hidden, weight, labels, chunk, reduction)
    return _ours(hidden, weight, labels, chunk, reduction, dtype)


def _product_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    device = hidden.device.type
    autocast = torch.is_autocast_enabled(device)
    if not autocast and hidden.dtype != weight.dtype:
        raise TypeError(f"hidden is {hidden.dtype} and weight {weight.dtype}, outside of autocast")
    dtype = torch.get_autocast_dtype(device) if autocast else hidden.dtype
    if dtype not in DTYPES:
        raise TypeError(f"a loss in {dtype}, expected one of {', '.join(map(str, DTYPES))}")
    return dtype


def _torch_serves(device: str, dtype: torch.dtype) -> bool:
    return TORCH_HAS_IT and device == "cpu" and dtype == torch.float32


def _whole(hidden: Tensor, weight: Tensor, labels: Tensor, reduction: str) -> Tensor:
    logits = F.linear(hidden, weight).float()
    return F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction=reduction)


def _torchs(hidden: Tensor, weight: Tensor, labels: Tensor, chunk: int, reduction: str) -> Tensor:
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=chunk, chunking_method=None)
    with warnings.catch_warnings():
        # What it cannot do in chunks it does with whole logits and a warning.
        warnings.filterwarnings("error", message="linear_cross_entropy", category=UserWarning)
        return F.linear_cross_entropy(
            hidden, weight, labels, reduction=reduction, ignore_index=IGNORED, options=options
        )


def _with_losses(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    chunk: int,
    reduction: str,
    dtype: torch.dtype,
    of_tokens: Tensor,
) -> Tensor:
    """By ways that know the loss of each token, which torch's of chunks does not."""
    if len(labels) > chunk:
        return _ours(hidden, weight, labels, chunk, reduction, dtype, of_tokens)
    losses = _whole(hidden, weight, labels, "none")
    of_tokens.copy_(losses.detach())
    return losses.sum() / (labels != IGNORED).sum() if reduction == "mean" else losses.sum()


def _ours(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    chunk: int,
    reduction: str,
    dtype: torch.dtype,
    of_tokens: Tensor | None = None,
) -> Tensor:
    total: Tensor = ChunkedCrossEntropy.apply(
        hidden, weight, labels, chunk, IGNORED, dtype, torch.is_grad_enabled(), of_tokens
    )
    return total / (labels != IGNORED).sum() if reduction == "mean" else total
