"""Causal multi-head self-attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers import Linear
from models.positions import Positions
from models.shape import Shape


@dataclass(frozen=True)
class Documents:
    """Several documents in a row, which do not see each other.

    position_ids: int64 (batch, seq), 0 where a document begins. mask: bool (batch, 1, seq, seq), what a
    position sees: its document up to itself.
    """

    position_ids: Tensor
    mask: Tensor


def documents_of(position_ids: Tensor) -> Documents:
    """position_ids: int64 (batch, seq), ascending by one, 0 where a document begins."""
    seq = position_ids.shape[1]
    document = (position_ids == 0).cumsum(1)
    causal = torch.ones(seq, seq, dtype=torch.bool, device=position_ids.device).tril()
    return Documents(position_ids, ((document[:, :, None] == document[:, None, :]) & causal)[:, None])


class Attention(nn.Module):
    """Scaled dot-product attention (Vaswani et al., arXiv:1706.03762) through torch's SDPA.

    Queries, keys and values are the thirds of one matrix, in this order.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.n_heads = shape.n_heads
        self.qkv = Linear(shape.d_model, 3 * shape.d_model)
        self.output = Linear(shape.d_model, shape.d_model)

    def forward(self, x: Tensor, positions: Positions, documents: Documents | None = None) -> Tensor:
        """(batch, seq, d_model) -> the same; position t sees positions 0 to t, those of its document."""
        batch, seq, d_model = x.shape
        heads = self.qkv(x).view(batch, seq, 3, self.n_heads, d_model // self.n_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        position_ids, mask = (documents.position_ids, documents.mask) if documents else (None, None)
        query, key = positions.rotate(query, position_ids), positions.rotate(key, position_ids)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        return self.output(mixed.transpose(1, 2).reshape(batch, seq, d_model))
