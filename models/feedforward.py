"""The feed-forward part of a block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from models.layers import Linear

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """`out(f(in(x)))`, (..., d_model) -> (..., d_model) (Vaswani et al., arXiv:1706.03762)."""

    def __init__(self, d_model: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.input = Linear(d_model, hidden)
        self.output = Linear(hidden, d_model)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activation(self.input(x)))


class GatedFeedForward(nn.Module):
    """`out(f(gate(x)) * up(x))` (Shazeer, arXiv:2002.05202); gate and up are one matrix, in this order."""

    def __init__(self, d_model: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.input = Linear(d_model, 2 * hidden)
        self.output = Linear(hidden, d_model)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.input(x).chunk(2, dim=-1)
        return self.output(self.activation(gate) * up)


FEED_FORWARDS: dict[str, Callable[[int, int], FeedForward | GatedFeedForward]] = {
    "swiglu": partial(GatedFeedForward, activation=F.silu),
    "gelu": partial(FeedForward, activation=partial(F.gelu, approximate="tanh")),
    "relu": partial(FeedForward, activation=F.relu),
    "silu": partial(FeedForward, activation=F.silu),
}
"""gelu is the tanh approximation, as in GPT-2 (Hendrycks & Gimpel, arXiv:1606.08415)."""
