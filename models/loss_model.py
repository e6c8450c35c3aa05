"""A language model and its loss as one module: what is handed to torch's wrappers for several ranks.

They act in the forward pass of the module they wrap, so all that uses a parameter has to happen in there:
also the product with the output matrix, which is the embedding matrix where the head is tied.
"""

from __future__ import annotations

from torch import Tensor, nn

from models.loss import lm_loss
from models.transformer import LanguageModel


class LossModel(nn.Module):
    """Ids and labels int64 (batch, seq) -> the loss in nats, a scalar in fp32 (`models.lm_loss`)."""

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
        hidden = self.model.hidden(input_ids, position_ids)
        return lm_loss(
            hidden, self.model.output_weight, labels, chunk, reduction=reduction, of_tokens=of_tokens
        )
