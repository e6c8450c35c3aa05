"""Causal multi-head self-attention."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers import Linear
from models.positions import Positions
from models.shape import Shape


class Attention(nn.Module):
    """Scaled dot-product attention (Vaswani et al., arXiv:1706.03762) through torch's SDPA.

    Queries, keys and values are the thirds of one matrix, in this order.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.n_heads = shape.n_heads
        self.qkv = Linear(shape.d_model, 3 * shape.d_model)
        self.output = Linear(shape.d_model, shape.d_model)

    def forward(self, x: Tensor, positions: Positions) -> Tensor:
        """(batch, seq, d_model) -> the same; position t sees positions 0 to t."""
        batch, seq, d_model = x.shape
        heads = self.qkv(x).view(batch, seq, 3, self.n_heads, d_model // self.n_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(
            positions.rotate(query), positions.rotate(key), value, is_causal=True
        )
        return self.output(mixed.transpose(1, 2).reshape(batch, seq, d_model))
