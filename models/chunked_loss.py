"""Cross-entropy of a linear head in chunks of tokens, with the gradients computed on the way.

The idea is that of Cut Your Losses (Wijmans et al., arXiv:2411.09009) and of Liger's fused linear
cross-entropy (Hsu et al., arXiv:2410.10989), in plain torch: once the logits of a chunk are there,
so is their gradient, and only its products with the weight and with the hidden states are kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of the losses of all tokens: a scalar in fp32.

    Arguments of `apply`: hidden (tokens, d), weight (vocab, d), labels int64 (tokens,), chunk
    (tokens), ignored (a label), dtype (of the three products), with_gradients (bool: false where
    autograd is off), of_tokens (fp32 (tokens,) that gets the loss of each, or None). Softmax, loss and
    the sum of the weight's gradient are in fp32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        labels: Tensor,
        chunk: int,
        ignored: int,
        dtype: torch.dtype,
        with_gradients: bool,
        of_tokens: Tensor | None = None,
    ) -> Tensor:
        ctx.for_hidden, ctx.for_weight = (with_gradients and needed for needed in ctx.needs_input_grad[:2])
        grad_hidden = torch.empty_like(hidden) if ctx.for_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.for_weight else None
        weight = weight.to(dtype)
        logits_of_chunk = hidden.new_empty((chunk, len(weight)), dtype=torch.float32)
        total = hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, len(labels), chunk):
            part = slice(start, start + chunk)
            states = hidden[part].to(dtype)
            counts = labels[part] != ignored
            targets = labels[part].where(counts, 0).unsqueeze(1)
            logits = logits_of_chunk[: len(states)]
            if dtype == torch.float32:
                torch.mm(states, weight.T, out=logits)
            else:
                logits.copy_(states @ weight.T)

            logits.sub_(logits.amax(dim=1, keepdim=True))
            of_target = logits.gather(1, targets).squeeze(1)
            sums = logits.exp_().sum(dim=1)
            losses = (sums.log() - of_target).where(counts, 0.0)
            total += losses.sum()
            if of_tokens is not None:
                of_tokens[part] = losses
            if not (ctx.for_hidden or ctx.for_weight):
                continue

            # Gradient of the logits: softmax - one-hot, in place; 0 where the label is ignored.
            logits.mul_((counts / sums).unsqueeze(1))
            logits.scatter_(1, targets, logits.gather(1, targets) - counts.unsqueeze(1).float())
            grad_logits = logits.to(dtype)
            if grad_hidden is not None:
                grad_hidden[part] = grad_logits @ weight
            if grad_weight is not None:
                if dtype == torch.float32:
                    grad_weight.addmm_(grad_logits.T, states)
                else:
                    grad_weight += grad_logits.T @ states
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        # In place, so that no second copy of a (vocab, d) matrix exists; a second backward pass through
        # the same loss is refused by autograd, which sees that a saved tensor was changed.
        grads = [None if saved is None else saved.mul_(grad_total) for saved in ctx.saved_tensors]
        return (*grads, *(None,) * 6)
