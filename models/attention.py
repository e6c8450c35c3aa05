"""Causal multi-head self-attention."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from conf.schema import Arch
from models.forward_pass import ForwardPass
from models.layers import Linear
from models.norms import rms
from models.shape import Shape


class Attention(nn.Module):
    """Scaled dot-product attention (Vaswani et al., arXiv:1706.03762) through torch's SDPA.

    Queries, keys and values are rows of one matrix, in this order; several heads of queries may share one of
    keys and values (Ainslie et al., arXiv:2305.13245). scale: of the scores; None: 1 / sqrt(head_dim).
    """

    def __init__(self, shape: Shape, arch: Arch, scale: float | None = None) -> None:
        super().__init__()
        self.heads = (shape.n_heads, shape.n_kv_heads, shape.n_kv_heads)
        self.is_grouped = shape.n_kv_heads < shape.n_heads
        self.dropout, self.scale = arch.dropout_attention, scale
        parts = tuple(heads * shape.head_dim for heads in self.heads)
        self.qkv = Linear(shape.d_model, sum(parts), bias=arch.bias != "none", parts=parts)
        self.query_norm = rms(shape.head_dim, arch.norm_eps) if arch.qk_norm else nn.Identity()
        self.key_norm = rms(shape.head_dim, arch.norm_eps) if arch.qk_norm else nn.Identity()
        self.output = Linear(shape.d_model, shape.d_model, bias=arch.bias in ("linear", "all"))

    def forward(self, x: Tensor, going: ForwardPass) -> Tensor:
        """(batch, seq, d_model) -> the same; a position sees what the mask says, by default 0 to itself."""
        batch, seq, d_model = x.shape
        heads = self.qkv(x).view(batch, seq, sum(self.heads), -1).transpose(1, 2)
        query, key, value = heads.split(self.heads, dim=1)
        query = going.positions.rotate(self.query_norm(query), going.position_ids)
        key = going.positions.rotate(self.key_norm(key), going.position_ids)
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=going.mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=going.mask is None,
            scale=self.scale,
            enable_gqa=self.is_grouped,
        )
        return self.output(mixed.transpose(1, 2).reshape(batch, seq, d_model))
