"""Gradient noise (Neelakantan et al., arXiv:1511.06807): less of it with each step."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

GAMMA = 0.55
"""By which power of the step its variance falls: the paper's."""


def deviation(eta: float, step: int) -> float:
    """Of the noise at this step, from 0: sqrt(eta / (1 + step)^0.55)."""
    return math.sqrt(eta / (1 + step) ** GAMMA)


def add_noise(parameters: Iterable[nn.Parameter], eta: float, step: int, seed: int) -> None:
    """Add to each gradient what follows from seed and step alone: a run that goes on needs no more."""
    import torch

    text = hashlib.sha256(f"gradient noise {seed} {step}".encode()).digest()
    generator = None
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if generator is None:
            generator = torch.Generator(gradient.device).manual_seed(int.from_bytes(text[:7], "big"))
        noise = torch.empty_like(gradient).normal_(0.0, deviation(eta, step), generator=generator)
        gradient.add_(noise)
