"""Causal multi-head self-attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conf.schema import Arch
from models.layers.basic import Linear
from models.layers.forward_context import ForwardPass
from models.layers.norms import rms
from models.loss.lm_loss import capped
from models.options.shape import Shape


class Attention(nn.Module):
    """Scaled dot-product attention (Vaswani et al., arXiv:1706.03762) through torch's SDPA.

    Queries, keys and values are rows of one matrix, in this order; several heads of queries may share one of
    keys and values (Ainslie et al., arXiv:2305.13245). scale: of the scores; None: 1 / sqrt(head_dim).
    """

    def __init__(self, shape: Shape, arch: Arch, scale: float | None = None) -> None:
        super().__init__()
        self.heads = (shape.n_heads, shape.n_kv_heads, shape.n_kv_heads)
        self.is_grouped = shape.n_kv_heads < shape.n_heads
        self.dropout, self.scale, self.softcap = arch.dropout_attention, scale, arch.attention_softcap
        parts = tuple(heads * shape.head_dim for heads in self.heads)
        self.qkv = Linear(shape.d_model, sum(parts), bias=arch.bias != "none", parts=parts)
        self.query_norm = rms(shape.head_dim, arch.norm_eps) if arch.qk_norm else nn.Identity()
        self.key_norm = rms(shape.head_dim, arch.norm_eps) if arch.qk_norm else nn.Identity()
        self.output = Linear(shape.d_model, shape.d_model, bias=arch.bias in ("linear", "all"))

    def forward(self, x: Tensor, going: ForwardPass) -> Tensor:
        """(batch, seq, d_model) -> the same; a position sees what the mask says, by default 0 to itself."""
        batch, seq, d_model = x.shape
        heads = self.qkv(x).view(batch, seq, sum(self.heads), -1).transpose(1, 2)
        if isinstance(self.query_norm, nn.Identity):  # one rotation of both: half of the operations
            both, value = heads.split((self.heads[0] + self.heads[1], self.heads[2]), dim=1)
            both = going.positions.rotate(both, going.position_ids)
            query, key = both.split(self.heads[:2], dim=1)
        else:
            query, key, value = heads.split(self.heads, dim=1)
            query = going.positions.rotate(self.query_norm(query), going.position_ids)
            key = going.positions.rotate(self.key_norm(key), going.position_ids)
        dropout = self.dropout if self.training else 0.0
        if self.softcap is not None:  # torch's kernels know of none
            mixed = capped_attention(query, key, value, going.mask, self.softcap, self.scale, dropout)
        else:
            mixed = F.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=going.mask,
                dropout_p=dropout,
                is_causal=going.mask is None,
                scale=self.scale,
                enable_gqa=self.is_grouped,
            )
        return self.output(mixed.transpose(1, 2).reshape(batch, seq, d_model))


def capped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    softcap: float,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """Attention whose scores never go beyond `softcap` (Gemma 2, arXiv:2408.00118), capped before the mask.

    query (batch, heads, seq, head_dim); key, value (batch, kv_heads, seq, head_dim), each of several heads.
    mask: as of `ForwardPass`. Scores and weights are in fp32. Returns (batch, heads, seq, head_dim).
    """
    batch, heads, seq, width = query.shape
    kv_heads = key.shape[1]
    # Heads that share keys stand below each other: no copy of keys and values for each of them.
    stacked = (query * (width**-0.5 if scale is None else scale)).reshape(batch, kv_heads, -1, width)
    scores = capped((stacked @ key.mT).float(), softcap).view(batch, heads, seq, seq)
    if mask is None:
        mask = torch.ones(seq, seq, dtype=torch.bool, device=query.device).tril()
    if mask.dtype == torch.bool:  # as numbers, of which a sum keeps nothing for the way back
        mask = scores.new_zeros(mask.shape).masked_fill(~mask, float("-inf"))
    weights = F.dropout((scores + mask).softmax(-1), dropout)
    return (weights.to(value.dtype).view(batch, kv_heads, -1, seq) @ value).view(batch, heads, seq, width)
