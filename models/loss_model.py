"""A language model and its loss as one module: what is handed to torch's wrappers for several ranks.

They act in the forward pass of the module they wrap, so all that uses a parameter has to happen in there:
also the product with the output matrix, which is the embedding matrix where the head is tied.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.loss.lm_loss import IGNORED, lm_loss, with_gradient_of
from models.loss.logits_loss import logits_loss
from models.transformer import LanguageModel


class LossModel(nn.Module):
    """Ids and labels int64 (batch, seq) -> the loss in nats, a scalar in fp32 (`models.loss.lm_loss`).

    In training its gradients are also those of what parts of the model want minimized; its value is not.
    """

    seen_by: Callable[[Tensor, Tensor], None] | None = None
    """Gets the hidden states (or logits) and the labels of each batch."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor,
        position_ids: Tensor | None,
        chunk: int,
        reduction: str = "mean",
        of_tokens: Tensor | None = None,
    ) -> Tensor:
        model = self.model
        hidden, losses = model.states(input_ids, position_ids)
        if self.seen_by is not None:
            self.seen_by(hidden, labels)
        if model.output_weight is None:  # of the user's, which has the logits
            return logits_loss(hidden, labels, reduction, of_tokens)
        loss = lm_loss(
            hidden,
            model.output_weight,
            labels,
            chunk,
            reduction=reduction,
            of_tokens=of_tokens,
            bias=model.head_bias,
            softcap=model.logit_softcap,
            z_loss=model.z_loss,
        )
        if not losses:
            return loss
        return with_gradient_of(loss, _reduced(torch.stack(losses).sum(0), labels, reduction))


def _reduced(penalty: Tensor, labels: Tensor, reduction: str) -> Tensor:
    """What parts of the model want minimized, of each row (batch,), reduced over labels as the loss is.

    So its part in the gradient of a step does not depend on how the rows are divided into micro-batches. A
    scalar stays as it is.
    """
    if not penalty.ndim:
        return penalty
    counts = (labels != IGNORED).sum(1)
    total = (penalty * counts).sum()
    return total / counts.sum() if reduction == "mean" else total
