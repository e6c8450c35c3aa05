"""The loss of a language model, without the logits of all tokens ever being in memory.

One face, three ways below it, chosen by rule:

- on a GPU: `models.loss.device_loss`;
- on a CPU, as many tokens as a chunk or fewer: ordinary cross-entropy; its logits are one chunk;
- on a CPU, more: `models.loss.chunked_loss`. torch's own `linear_cross_entropy` takes longer on a CPU
  (benchmarks/loss.py), gives a loss in the dtype of its inputs, in bf16 with steps of 0.06, and knows no
  autocast, soft-cap or z-loss.

The value is the cross-entropy always, so that losses can be compared; what else is minimized (z-loss) is in
the gradients alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from models.loss.chunked_loss import ChunkedCrossEntropy, Chunks
from models.loss.device_loss import DeviceCrossEntropy

IGNORED = -100
"""The label of a position that has no target."""

REDUCTIONS = ("mean", "sum")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def loss_implementation(device: str) -> str:
    """Name of what computes the loss if tokens are more than a chunk, for run.json. device: its kind."""
    return "models.chunked_loss, in tiles" if device == "cpu" else "models.device_loss"


def capped(logits: Tensor, softcap: float | None) -> Tensor:
    """`softcap * tanh(logits / softcap)`, never beyond softcap (Gemma 2, arXiv:2408.00118)."""
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def with_gradient_of(value: Tensor, penalty: Tensor) -> Tensor:
    """The value as it is, with the gradients of value + penalty."""
    return value + (penalty - penalty.detach())


def lm_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    chunk: int,
    reduction: str = "mean",
    of_tokens: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    softcap: float | None = None,
    z_loss: float = 0.0,
) -> Tensor:
    """Cross-entropy of `softmax(hidden @ weight.T)` against labels, in nats; gradients for both.

    Of logits (tokens, vocab) no more than `chunk` rows exist at once.

    hidden: (..., d_model). weight: (vocab, d_model). Both fp32 or both of one 16-bit type; under
        autocast the products are in its type, as those of `F.linear` would be.
    labels: int64 (...); -100 is ignored.
    reduction: mean over the labels not ignored (nan where there is none), or sum.
    of_tokens: fp32, of the shape of labels: gets the loss of each, 0 where it is ignored.
    bias: (vocab,), added to the logits. softcap: see `capped`.
    z_loss: gradients are those of the loss and of so many times the mean (or sum) of log(Z)^2, Z the sum of
        the exponents (PaLM, arXiv:2204.02311).
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
    dtype = product_dtype(hidden, weight)
    head = Head(weight, bias, softcap, z_loss if torch.is_grad_enabled() else 0.0)
    each = None if of_tokens is None else of_tokens.view(-1)
    how = Chunks(chunk, IGNORED, dtype, torch.is_grad_enabled(), softcap, head.z_loss)
    if not hidden.is_cpu:
        stacked = [None if one is None else one.unsqueeze(0) for one in (hidden, weight, bias, labels)]
        total = DeviceCrossEntropy.apply(*stacked, how, None if each is None else each.unsqueeze(0)).view(())
    elif len(labels) <= chunk:
        return _whole(hidden, head, labels, reduction, each)
    else:
        total = ChunkedCrossEntropy.apply(hidden, weight, bias, labels, how, each)
    return total / (labels != IGNORED).sum() if reduction == "mean" else total


@dataclass(frozen=True)
class Head:
    """What makes logits of states: see `lm_loss`."""

    weight: Tensor
    bias: Tensor | None
    softcap: float | None
    z_loss: float


def product_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """Type in which hidden states and weights are multiplied.

    Raises:
        TypeError: a type that the loss does not know, or two types outside of autocast.
    """
    device = hidden.device.type
    autocast = torch.is_autocast_enabled(device)
    if not autocast and hidden.dtype != weight.dtype:
        raise TypeError(f"hidden is {hidden.dtype} and weight {weight.dtype}, outside of autocast")
    dtype = torch.get_autocast_dtype(device) if autocast else hidden.dtype
    if dtype not in DTYPES:
        raise TypeError(f"a loss in {dtype}, expected one of {', '.join(map(str, DTYPES))}")
    return dtype


def _whole(hidden: Tensor, head: Head, labels: Tensor, reduction: str, of_tokens: Tensor | None) -> Tensor:
    logits = capped(F.linear(hidden, head.weight, head.bias).float(), head.softcap)
    if of_tokens is None:
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction=reduction)
    else:
        losses = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
        of_tokens.copy_(losses.detach())
        loss = _reduced(losses.sum(), labels, reduction)
    if not head.z_loss:
        return loss
    squares = logits.logsumexp(1).square().where(labels != IGNORED, 0.0).sum()
    return with_gradient_of(loss, head.z_loss * _reduced(squares, labels, reduction))


def _reduced(total: Tensor, labels: Tensor, reduction: str) -> Tensor:
    return total / (labels != IGNORED).sum() if reduction == "mean" else total
