"""The feed-forward part of a block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from conf.own_parts.load import code_of
from conf.schema import Arch
from models.layers.basic import Linear
from models.layers.experts import Experts
from models.options.activations import activation_costs
from models.options.shape import Shape

Activation = Callable[[Tensor], Tensor]


def relu2(x: Tensor) -> Tensor:
    """The square of relu (So et al., arXiv:2109.08668)."""
    return F.relu(x).square()


def gated(activation: Activation) -> Activation:
    """`f(gate) * up` of a tensor (..., 2 hidden) that holds both in this order (Shazeer, 2002.05202)."""

    def inner(x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return activation(gate) * up

    return inner


_GELU_TANH = partial(F.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Activation] = {
    "swiglu": gated(F.silu),
    "geglu": gated(_GELU_TANH),
    "gelu": _GELU_TANH,
    "gelu_exact": F.gelu,
    "relu": F.relu,
    "relu2": relu2,
    "silu": F.silu,
}
"""What stands between the two products. gelu is the tanh approximation, as in GPT-2."""


def activation_function(name: str) -> Activation:
    """Function of an activation: one of ours, or one that the user registered."""
    return ACTIVATIONS[name] if name in ACTIVATIONS else code_of("arch_option", name).code


class FeedForward(nn.Module):
    """`out(f(in(x)))`, (..., d_model) -> (..., d_model) (Vaswani et al., arXiv:1706.03762).

    Of a gated unit the input's matrix is gate and up, in this order. With the result comes the loss that the
    part wants minimized besides, of which there is none.
    """

    def __init__(self, shape: Shape, arch: Arch) -> None:
        super().__init__()
        hidden, has_bias = shape.ffn_hidden, arch.bias in ("linear", "all")
        parts = (hidden,) * (activation_costs(arch.activation).matrices - 1)
        self.input = Linear(shape.d_model, sum(parts), bias=has_bias, parts=parts)
        self.output = Linear(hidden, shape.d_model, bias=has_bias)
        self.activation = activation_function(arch.activation)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.output(self.activation(self.input(x))), None


def feed_forward(shape: Shape, arch: Arch) -> FeedForward | Experts:
    """One part for all tokens, or experts among which each token has its own."""
    if arch.n_experts is None:
        return FeedForward(shape, arch)
    return Experts(shape, arch, activation_function(arch.activation))
