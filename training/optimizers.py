"""The optimizers, and which parameters decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from conf.schema import Optimizer

FUSED_ON = ("cpu", "cuda")
"""Devices whose fused kernels update all parameters in one pass: 2 ms for 10-14 on a small model."""


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Decay for tensors of two or more dimensions, none for gains and other vectors.

    Embeddings and learned positions are among the first, as in GPT-3 and nanoGPT: with a tied head
    the embedding matrix is the output matrix.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def adamw(groups: list[dict[str, Any]], config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter, arXiv:1711.05101): decay is `lr * weight_decay * weight` a step."""
    return torch.optim.AdamW(
        groups,
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=device_type in FUSED_ON,
    )


OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], Optimizer, str], torch.optim.Optimizer]] = {
    "adamw": adamw,
}


def build_optimizer(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """The optimizer of a configuration over the parameters of a model that is on its device already.

    device_type: of those parameters, as `torch.device(...).type` names it.
    """
    return OPTIMIZERS[config.name](parameter_groups(model, config.weight_decay), config, device_type)
