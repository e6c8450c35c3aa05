"""The loss of each of several models of one shape, as `lm_loss` has it of one, in batched products.

The value is the cross-entropy always; what else is minimized (z-loss) is in the gradients alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from models.loss.chunked_loss import Chunks
from models.loss.device_loss import DeviceCrossEntropy
from models.loss.lm_loss import IGNORED, capped, lm_loss, product_dtype, with_gradient_of


def stacked_loss(
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
    """Cross-entropy of each member, fp32 (members,), in nats.

    hidden: (members, tokens, d_model). weight: (members, vocab, d_model). labels: int64 (members, tokens),
    -100 is ignored. chunk: tokens, of one member or of all together, whose logits exist at once. of_tokens:
    fp32 (members, tokens), gets the loss of each. bias: (members, vocab). The rest is as of `lm_loss`.
    """
    z_loss = z_loss if torch.is_grad_enabled() else 0.0
    if not hidden.is_cpu:
        dtype = product_dtype(hidden, weight)
        how = Chunks(chunk, IGNORED, dtype, torch.is_grad_enabled(), softcap, z_loss)
        totals = DeviceCrossEntropy.apply(hidden, weight, bias, labels, how, of_tokens)
    elif labels.numel() <= chunk:
        totals = _whole(hidden, weight, labels, of_tokens, bias, softcap, z_loss)
    else:
        # Products of a chunk are large: nothing is won by a batch of them. The way back through `unbind`
        # makes one stack of all gradients, that of an index one of zeros for each.
        none = [None] * len(labels)
        each = zip(
            hidden.unbind(),
            weight.unbind(),
            labels.unbind(),
            none if of_tokens is None else of_tokens.unbind(),
            none if bias is None else bias.unbind(),
            strict=True,
        )
        totals = torch.stack(
            [
                lm_loss(states, head, targets, chunk, "sum", losses, bias=own, softcap=softcap, z_loss=z_loss)
                for states, head, targets, losses, own in each
            ]
        )
    return totals / (labels != IGNORED).sum(1) if reduction == "mean" else totals


def _whole(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    of_tokens: Tensor | None,
    bias: Tensor | None,
    softcap: float | None,
    z_loss: float,
) -> Tensor:
    logits = torch.bmm(hidden, weight.mT) if bias is None else torch.baddbmm(bias[:, None], hidden, weight.mT)
    logits = capped(logits.float(), softcap).flatten(0, 1)
    losses = F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="none")
    losses = losses.view(labels.shape)
    if of_tokens is not None:
        of_tokens.copy_(losses.detach())
    totals = losses.sum(1)
    if not z_loss:
        return totals
    squares = logits.logsumexp(1).square().view(labels.shape).where(labels != IGNORED, 0.0)
    return with_gradient_of(totals, z_loss * squares.sum(1))
