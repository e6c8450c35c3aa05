"""The optimizers by name. A training process alone imports this: it loads torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from conf.schema import Optimizer
from training.optimizers.groups import parameter_groups
from training.optimizers.lion import Lion
from training.optimizers.schedule_free import ScheduleFreeAdamW
from training.optimizers.together import Together

FUSED_ON = ("cpu", "cuda")
"""Devices whose fused kernels update all parameters in one pass: 2 ms for 10-14 on a small model."""


def adamw(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter, arXiv:1711.05101): decay is `lr * weight_decay * weight` a step."""
    return _adamw(parameter_groups(model, config), config, device_type)


def adam(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba, arXiv:1412.6980); decay is added to the gradient."""
    return torch.optim.Adam(
        parameter_groups(model, config),
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        fused=device_type in FUSED_ON,
    )


def sgd(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """SGD with momentum, Nesterov's where asked for (Sutskever et al., ICML 2013); decay in the gradient."""
    is_fused = device_type in FUSED_ON and not _is_sharded(model)
    optimizer = torch.optim.SGD(
        parameter_groups(model, config),
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        fused=is_fused,
    )
    if is_fused and device_type == "cuda" and config.momentum:
        # The fused step makes them of memory as it is, and a step that overflows in fp16 does not write them.
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def rmsprop(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """RMSprop (Tieleman & Hinton 2012, lecture 6.5), beta2 for the squares; decay in the gradient."""
    return torch.optim.RMSprop(
        parameter_groups(model, config), lr=config.lr, alpha=config.beta2, momentum=config.momentum
    )


def adagrad(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """Adagrad (Duchi et al., JMLR 12, 2011); decay in the gradient."""
    groups = parameter_groups(model, config)
    return torch.optim.Adagrad(groups, lr=config.lr, fused=device_type == "cpu" and not _is_sharded(model))


def lion(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """Lion (Chen et al., arXiv:2302.06675)."""
    return Lion(parameter_groups(model, config), lr=config.lr, betas=(config.beta1, config.beta2))


def muon(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) for the matrices of blocks, AdamW for the
    rest. muon_scale `adamw`: updates as large as AdamW's (Liu et al., arXiv:2502.16982).
    """
    hidden = parameter_groups(model, config, lambda role: role == "hidden")
    rest = parameter_groups(model, config, lambda role: role != "hidden")
    for group in hidden:
        del group["eps"]  # Muon's own is of the norm of a whole matrix
    matrices = torch.optim.Muon(
        hidden,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        adjust_lr_fn="match_rms_adamw" if config.muon_scale == "adamw" else "original",
    )
    return Together([matrices, _adamw(rest, config, device_type)])


def adafactor(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """Adafactor (Shazeer & Stern, arXiv:1804.04235) as torch has it: a step is at most lr, relative to
    the size of the weights.
    """
    groups = parameter_groups(model, config)
    for group in groups:
        del group["eps"]  # two of other meanings
    return torch.optim.Adafactor(groups, lr=config.lr)


def schedule_free(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """Schedule-free AdamW (Defazio et al., arXiv:2405.15682)."""
    groups = parameter_groups(model, config)
    return ScheduleFreeAdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2))


OPTIMIZERS: dict[str, Callable[[nn.Module, Optimizer, str], torch.optim.Optimizer]] = {
    "adamw": adamw,
    "adam": adam,
    "sgd": sgd,
    "rmsprop": rmsprop,
    "adagrad": adagrad,
    "lion": lion,
    "muon": muon,
    "adafactor": adafactor,
    "schedule_free": schedule_free,
}


def build_optimizer(model: nn.Module, config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    """Build one of our optimizers over the parameters of a model that is on its device already.

    Args:
        device_type: of those parameters, as `torch.device(...).type` names it.
    """
    return OPTIMIZERS[config.name](model, config, device_type)


def is_elementwise(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step treats each number by itself, so that parameters can be stepped as one tensor."""
    return type(optimizer).__module__.startswith(("torch.", __name__)) and not isinstance(
        optimizer, Together | torch.optim.Adafactor
    )


def _is_sharded(model: nn.Module) -> bool:
    """Whether FSDP2 has the parameters in parts, for which torch has the fused kernels of Adam alone."""
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def _adamw(groups: list[dict[str, Any]], config: Optimizer, device_type: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=device_type in FUSED_ON
    )
