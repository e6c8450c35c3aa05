"""How a model knows the order of its tokens: on the embeddings, on queries and keys, or on their scores."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from conf.schema import Arch
from models.layers.basic import Embedding
from models.layers.rotary import frequencies
from models.options.shape import Shape


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

    def slopes(self) -> Tensor | None:
        """What each head takes off a score for each position between query and key, fp32 (heads)."""
        return None


class Rotary(Positions):
    """Rotary positions (Su et al., arXiv:2104.09864): pair i of a head turns by `t * frequencies[i]`.

    Pairs are (i, i + width / 2) of the first `width` of a head, as in Llama and GPT-NeoX, and what is behind
    them stays as it is; tables and rotation are in fp32.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, frequencies: Tensor, max_positions: int) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is None:
            cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        else:
            cos, sin = self.cos[position_ids].unsqueeze(1), self.sin[position_ids].unsqueeze(1)
        width = 2 * cos.shape[-1]
        first, second = x[..., :width].float().chunk(2, dim=-1)
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
        return rotated if width == x.shape[-1] else torch.cat((rotated, x[..., width:]), dim=-1)


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


class Alibi(Positions):
    """Attention with linear biases (Press et al., arXiv:2108.12409): scores fall with the distance.

    Slopes are `2^(-8i / n)` for heads 1 to n of a power of two; of another number the first are those of the
    power below, the others every second one of the power above.
    """

    of_heads: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("of_heads", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def slopes(self) -> Tensor:
        return self.of_heads


def alibi_slopes(n_heads: int) -> list[float]:
    """Of each head, the steepest first."""
    below = 1 << (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * i / below) for i in range(1, below + 1)]
    return slopes + [2 ** (-4 * i / below) for i in range(1, 2 * (n_heads - below), 2)]


POSITIONS: dict[str, Callable[[Shape, Arch, int], Positions]] = {
    "rotary": lambda shape, arch, length: Rotary(frequencies(shape.rotary_dim, arch), length),
    "learned": lambda shape, arch, length: Learned(shape.d_model, length),
    "sinusoidal": lambda shape, arch, length: Sinusoidal(shape.d_model, length),
    "alibi": lambda shape, arch, length: Alibi(shape.n_heads),
    "none": lambda shape, arch, length: Positions(),
}
