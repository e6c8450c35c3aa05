"""The loss of logits that a model of the user's computed whole."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from models.loss.lm_loss import IGNORED


def logits_loss(logits: Tensor, labels: Tensor, reduction: str, of_tokens: Tensor | None = None) -> Tensor:
    """Cross-entropy in nats, fp32 scalar.

    Args:
        logits: (batch, seq, vocab), any floating type.
        labels: int64 (batch, seq); -100 is ignored.
        reduction: mean over the labels that count, or sum.
        of_tokens: fp32 (batch, seq): gets the loss of each token, 0 where it is ignored.
    """
    flat = logits.flatten(0, 1).float()
    if of_tokens is None:
        return F.cross_entropy(flat, labels.flatten(), ignore_index=IGNORED, reduction=reduction)
    losses = F.cross_entropy(flat, labels.flatten(), ignore_index=IGNORED, reduction="none")
    of_tokens.copy_(losses.detach().view(labels.shape))
    total = losses.sum()
    return total / (labels != IGNORED).sum() if reduction == "mean" else total
