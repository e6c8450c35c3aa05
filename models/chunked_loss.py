"""Cross-entropy of a linear head in chunks of tokens, with the gradients computed on the way.

The idea is that of Cut Your Losses (Wijmans et al., arXiv:2411.09009) and of Liger's fused linear
cross-entropy (Hsu et al., arXiv:2410.10989), in plain torch: once the logits of a chunk are there,
so is their gradient, and only its products with the weight and with the hidden states are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Chunks:
    """How it is computed.

    chunk: tokens at once. ignored: a label. dtype: of the three products. with_gradients: false where
    autograd is off. softcap, z_loss: as of `models.lm_loss`.
    """

    chunk: int
    ignored: int
    dtype: torch.dtype
    with_gradients: bool
    softcap: float | None = None
    z_loss: float = 0.0


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of the losses of all tokens: a scalar in fp32.

    Of `apply`: hidden (tokens, d), weight (vocab, d), bias (vocab,) or None, labels int64 (tokens,),
    how, of_tokens (fp32 (tokens,) that gets the loss of each, or None). Softmax, loss and the sums of the
    gradients of weight and bias are in fp32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        how: Chunks,
        of_tokens: Tensor | None = None,
    ) -> Tensor:
        for_hidden, for_weight, for_bias = (how.with_gradients and need for need in ctx.needs_input_grad[:3])
        grad_hidden = torch.empty_like(hidden) if for_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if for_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if for_bias and bias is not None else None
        weight = weight.to(how.dtype)
        logits_of_chunk = hidden.new_empty((how.chunk, len(weight)), dtype=torch.float32)
        total = hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, len(labels), how.chunk):
            part = slice(start, start + how.chunk)
            states = hidden[part].to(how.dtype)
            counts = labels[part] != how.ignored
            targets = labels[part].where(counts, 0).unsqueeze(1)
            logits = _products(states, weight, bias, out=logits_of_chunk[: len(states)])
            slopes = None if how.softcap is None else _cap(logits, how.softcap)
            of_target = logits.gather(1, targets).squeeze(1)
            if logits.is_cpu:
                losses = _softmax(logits, targets)
                if _holds(losses.isinf().any()):
                    _mend(losses, states, weight, bias, targets, how.softcap)
                scales = counts.float()
                is_scaled = bool(how.z_loss) or not _holds(counts.all())
            else:
                sums, losses = _exponents(logits, targets)
                scales, is_scaled = counts / sums, True
            total += losses.where(counts, 0.0).sum()
            if of_tokens is not None:
                of_tokens[part] = losses.where(counts, 0.0)
            if not (for_hidden or for_weight or for_bias):
                continue

            # Gradient of the logits: softmax - one-hot, in place; 0 where the label is ignored. That of
            # log(Z)^2 is 2 log(Z) softmax.
            if how.z_loss:
                scales *= 1 + 2 * how.z_loss * (of_target + losses)
            if is_scaled:
                logits.mul_(scales.unsqueeze(1))
            logits.scatter_(1, targets, logits.gather(1, targets) - counts.unsqueeze(1).float())
            if slopes is not None:
                logits.mul_(slopes)
            if grad_bias is not None:
                grad_bias += logits.sum(0)
            grad_logits = logits.to(how.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = grad_logits @ weight
            if grad_weight is not None:
                if how.dtype == torch.float32:
                    grad_weight.addmm_(grad_logits.T, states)
                else:
                    grad_weight += grad_logits.T @ states
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        # In place, so that no second copy of a (vocab, d) matrix exists; a second backward pass through
        # the same loss is refused by autograd, which sees that a saved tensor was changed.
        grads = [None if saved is None else saved.mul_(grad_total) for saved in ctx.saved_tensors]
        return (*grads, None, None, None)


def _products(states: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Logits in fp32, in `out`; states and weight are of the type in which they are multiplied."""
    if states.dtype == torch.float32:
        torch.mm(states, weight.T, out=out)
    else:
        out.copy_(states @ weight.T)
    return out if bias is None else out.add_(bias)


def _softmax(logits: Tensor, targets: Tensor) -> Tensor:
    """Softmax in place; returns the losses, infinite where the probability of a target is no number of fp32.

    On a CPU torch's kernel takes row by row, which stays in its cache, where one operation after the other
    reads and writes the whole chunk (benchmarks/loss.py).
    """
    torch.softmax(logits, 1, out=logits)
    chosen = logits.gather(1, targets).squeeze(1)
    return chosen.log().neg_().masked_fill_(chosen < _LEAST, math.inf)


def _holds(flag: Tensor) -> bool:
    """Whether it is true; of tensors that are shapes alone (memory.trace) nobody knows: no."""
    return not isinstance(flag, FakeTensor) and bool(flag)


_LEAST = 1e-30
"""Probabilities below it have no full precision, or are 0."""


def _mend(
    losses: Tensor,
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    softcap: float | None,
) -> None:
    """Take the losses that are infinite from the logits, which are computed once more."""
    rows = losses.isinf().nonzero().squeeze(1)
    out = states.new_empty((len(rows), len(weight)), dtype=torch.float32)
    logits = _products(states[rows], weight, bias, out)
    if softcap is not None:
        _cap(logits, softcap)
    losses[rows] = logits.logsumexp(1) - logits.gather(1, targets[rows]).squeeze(1)


def _exponents(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax in place but for a division by the first result, of each row; and the losses."""
    logits.sub_(logits.amax(dim=1, keepdim=True))
    of_target = logits.gather(1, targets).squeeze(1)
    sums = logits.exp_().sum(dim=1)
    return sums, sums.log() - of_target


def _cap(logits: Tensor, softcap: float) -> Tensor:
    """`softcap * tanh(logits / softcap)` in place; returns its derivative, of the same size."""
    tanh = logits.div_(softcap).tanh_()
    slopes = tanh.square().neg_().add_(1)
    logits.mul_(softcap)
    return slopes
