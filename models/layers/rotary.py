"""Rotary positions, and how their frequencies are scaled for sequences longer than those trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from conf.schema import Arch


@dataclass(frozen=True)
class Scaling:
    """factor: how many times as long sequences are to be. The others are of llama3."""

    factor: float
    original_positions: int
    low_frequency: float
    high_frequency: float


def plain(width: int, theta: float, scaling: Scaling) -> Tensor:
    """Radians a position of each pair: `theta^(-2i / width)` (Su et al., arXiv:2104.09864)."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32) / width
    return theta**-exponents


def linear(width: int, theta: float, scaling: Scaling) -> Tensor:
    """Positions are pressed together (Chen et al., arXiv:2306.15595)."""
    return plain(width, theta, scaling) / scaling.factor


def ntk(width: int, theta: float, scaling: Scaling) -> Tensor:
    """A larger theta: the slowest pair as with `linear`, the fastest untouched (bloc97 2023)."""
    return plain(width, theta * scaling.factor ** (width / max(1, width - 2)), scaling)


def llama3(width: int, theta: float, scaling: Scaling) -> Tensor:
    """As `linear` for slow pairs, nothing for fast ones, between them in between (Llama 3, 2407.21783)."""
    angles = plain(width, theta, scaling)
    turns = scaling.original_positions * angles / (2 * math.pi)
    low, high = scaling.low_frequency, scaling.high_frequency
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * angles + (1 - kept) * angles / scaling.factor


SCALINGS: dict[str, Callable[[int, float, Scaling], Tensor]] = {
    "none": plain,
    "linear": linear,
    "ntk": ntk,
    "llama3": llama3,
}


def frequencies(width: int, arch: Arch) -> Tensor:
    """Radians a position of each of the width / 2 pairs, fp32."""
    scaling = Scaling(
        arch.rope_factor, arch.rope_original_positions, arch.rope_low_frequency, arch.rope_high_frequency
    )
    return SCALINGS[arch.rope_scaling](width, arch.rope_theta, scaling)
