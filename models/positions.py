"""How a model knows the order of its tokens: on the embeddings, or on queries and keys."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.layers import Embedding
from models.shape import Shape


class Positions(nn.Module):
    """Does nothing; each kind overrides the place where it acts.

    position_ids: int64 (batch, seq); None: 0 to seq - 1 in each row.
    """

    def embed(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Add positions to embeddings (batch, seq, d_model)."""
        return x

    def rotate(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Put positions into queries or keys (batch, heads, seq, head_dim)."""
        return x


class Rotary(Positions):
    """Rotary positions (Su et al., arXiv:2104.09864): pair i of a head turns by `t * theta^(-2i / head_dim)`.

    Pairs are (i, i + head_dim / 2), as in Llama and GPT-NeoX; tables and rotation are in fp32.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, head_dim: int, max_positions: int, theta: float) -> None:
        super().__init__()
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), theta**-exponents)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is None:
            cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        else:
            cos, sin = self.cos[position_ids].unsqueeze(1), self.sin[position_ids].unsqueeze(1)
        first, second = x.float().chunk(2, dim=-1)
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return rotated.to(x.dtype)


class Learned(Positions):
    """One learned vector a position, added to the embedding (Radford et al. 2019, GPT-2)."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.table = Embedding(max_positions, d_model)

    def embed(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        return x + (self.table.weight[: x.shape[1]] if position_ids is None else self.table(position_ids))


class Sinusoidal(Positions):
    """Fixed sines and cosines added to the embedding, which is scaled by sqrt(d_model).

    Vaswani et al., arXiv:1706.03762, sections 3.4 and 3.5: column 2i is `sin(t * 10000^(-2i / d))`,
    column 2i + 1 the cosine.
    """

    table: Tensor

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        exponents = torch.arange(0, d_model, 2, dtype=torch.float32) / d_model
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), 10000.0**-exponents)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :d_model]
        self.register_buffer("table", table.contiguous(), persistent=False)
        self.scale = d_model**0.5

    def embed(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        return x * self.scale + self.table[slice(x.shape[1]) if position_ids is None else position_ids]


POSITIONS: dict[str, Callable[[Shape, int, float], Positions]] = {
    "rotary": lambda shape, max_positions, theta: Rotary(shape.head_dim, max_positions, theta),
    "learned": lambda shape, max_positions, theta: Learned(shape.d_model, max_positions),
    "sinusoidal": lambda shape, max_positions, theta: Sinusoidal(shape.d_model, max_positions),
}
