"""First values of the weights."""

from __future__ import annotations

import math

import torch
from torch import nn

from models.layers import Embedding, Linear


@torch.no_grad()
def initialize(model: nn.Module, std: float, n_layers: int, generator: torch.Generator | None) -> None:
    """Draw every matrix from N(0, std^2), in the order of `model.modules()`; norm gains are left at 1.

    The two matrices of a block that write to the residual stream get `std / sqrt(2 n_layers)`, so
    that its variance does not grow with depth (Radford et al. 2019, GPT-2, section 2.3). Draws are
    made where the weights are: build on the CPU and move the model, and a seed means the same
    weights on every device.

    generator: None for torch's global one.
    """
    residual = std / math.sqrt(2 * n_layers)
    for name, module in model.named_modules():
        if isinstance(module, Linear | Embedding):
            writes_to_residual = name.endswith(".output")
            module.weight.normal_(0.0, residual if writes_to_residual else std, generator=generator)
