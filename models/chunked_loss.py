"""Cross-entropy of a linear head in chunks of tokens, with the gradients computed on the way.

The idea is that of Cut Your Losses (Wijmans et al., arXiv:2411.09009) and of Liger's fused linear
cross-entropy (Hsu et al., arXiv:2410.10989), in plain torch: once the logits of a chunk are there,
so is their gradient, and only its products with the weight and with the hidden states are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
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
    gradients of weight and bias are in fp32. Of several models of one shape all have one more dimension in
    front, and so has the result (models,); a chunk is then so many tokens of each.
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
        models, tokens = labels.shape[:-1], labels.shape[-1]
        rows = min(how.chunk, tokens)
        logits_of_chunk = hidden.new_empty((*models, rows, weight.shape[-2]), dtype=torch.float32)
        total = hidden.new_zeros(models, dtype=torch.float32)
        for start in range(0, tokens, how.chunk):
            part = (..., slice(start, start + how.chunk))
            states = hidden[(*part, slice(None))].to(how.dtype)
            counts = labels[part] != how.ignored
            targets = labels[part].where(counts, 0).unsqueeze(-1)
            logits = logits_of_chunk[..., : states.shape[-2], :]
            if how.dtype == torch.float32 and logits.is_contiguous():
                torch.matmul(states, weight.mT, out=logits)
            else:
                logits.copy_(states @ weight.mT)
            if bias is not None:
                logits.add_(bias.unsqueeze(-2))
            slopes = None if how.softcap is None else _cap(logits, how.softcap)

            largest = logits.amax(dim=-1, keepdim=True)
            logits.sub_(largest)
            of_target = logits.gather(-1, targets).squeeze(-1)
            sums = logits.exp_().sum(dim=-1)
            losses = (sums.log() - of_target).where(counts, 0.0)
            total += losses.sum(-1)
            if of_tokens is not None:
                of_tokens[part] = losses
            if not (for_hidden or for_weight or for_bias):
                continue

            # Gradient of the logits: softmax - one-hot, in place; 0 where the label is ignored. That of
            # log(Z)^2 is 2 log(Z) softmax.
            scales = counts / sums
            if how.z_loss:
                scales *= 1 + 2 * how.z_loss * (largest.squeeze(-1) + sums.log())
            logits.mul_(scales.unsqueeze(-1))
            logits.scatter_(-1, targets, logits.gather(-1, targets) - counts.unsqueeze(-1).float())
            if slopes is not None:
                logits.mul_(slopes)
            if grad_bias is not None:
                grad_bias += logits.sum(-2)
            grad_logits = logits.to(how.dtype)
            if grad_hidden is not None:
                grad_hidden[(*part, slice(None))] = grad_logits @ weight
            if grad_weight is not None:
                if how.dtype == torch.float32:
                    _add_product(grad_weight, grad_logits.mT, states)
                else:
                    grad_weight += grad_logits.mT @ states
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        # In place, so that no second copy of a (vocab, d) matrix exists; a second backward pass through
        # the same loss is refused by autograd, which sees that a saved tensor was changed.
        grads = [
            None if saved is None else saved.mul_(grad_total.view(*grad_total.shape, *[1] * trailing))
            for saved, trailing in zip(ctx.saved_tensors, (2, 2, 1), strict=True)
        ]
        return (*grads, None, None, None)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total += left @ right`, without a tensor for the product."""
    if total.ndim == 2:
        total.addmm_(left, right)
    else:
        total.baddbmm_(left, right)


def _cap(logits: Tensor, softcap: float) -> Tensor:
    """`softcap * tanh(logits / softcap)` in place; returns its derivative, of the same size."""
    tanh = logits.div_(softcap).tanh_()
    slopes = tanh.square().neg_().add_(1)
    logits.mul_(softcap)
    return slopes
