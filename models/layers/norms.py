"""Normalizations over the last dimension, each with a gain, in fp32 whatever comes in."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class RMSNorm(nn.RMSNorm):
    """`x / sqrt(mean(x^2) + eps) * gain` (Zhang & Sennrich, arXiv:1910.07467); it knows no bias."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


class LayerNorm(nn.LayerNorm):
    """`(x - mean) / sqrt(var + eps) * gain + bias` (Ba et al., arXiv:1607.06450)."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.float())


def rms(width: int, eps: float, bias: bool = False) -> nn.Module:
    """bias: ignored, RMSNorm has none."""
    return RMSNorm(width, eps=eps)


def layer(width: int, eps: float, bias: bool = False) -> nn.Module:
    """bias: whether it has one."""
    return LayerNorm(width, eps=eps, bias=bias)


def none(width: int, eps: float, bias: bool = False) -> nn.Module:
    """Nothing, without parameters."""
    return nn.Identity()


NORMS: dict[str, Callable[[int, float, bool], nn.Module]] = {"rms": rms, "layer": layer, "none": none}
