"""Normalizations over the last dimension, each with a gain and no bias."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def rms(width: int, eps: float) -> nn.Module:
    """RMSNorm, `x / sqrt(mean(x^2) + eps) * gain` (Zhang & Sennrich, arXiv:1910.07467)."""
    return nn.RMSNorm(width, eps=eps)


def layer(width: int, eps: float) -> nn.Module:
    """LayerNorm, `(x - mean) / sqrt(var + eps) * gain` (Ba et al., arXiv:1607.06450)."""
    return nn.LayerNorm(width, eps=eps, bias=False)


NORMS: dict[str, Callable[[int, float], nn.Module]] = {"rms": rms, "layer": layer}
