"""Parameters in groups of one setting: which decay, and by what their learning rate is multiplied."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_float
from typing import Any

from torch import nn

from conf.schema import Optimizer
from models.options.parameter_roles import roles_of
from models.options.parametrization import STANDARD, Scales


def parameter_groups(
    model: nn.Module, config: Optimizer, of_role: Callable[[str], bool] = lambda role: True
) -> list[dict[str, Any]]:
    """Groups for an optimizer of torch: `params`, `weight_decay`, `eps`, and `lr_factor`, by which the
    learning rate of a step is multiplied (`set_lr`).

    Decay for tensors of two or more dimensions, none for gains and other vectors. Embeddings and learned
    positions are among the first, as in GPT-3 and nanoGPT: with a tied head the embedding matrix is the
    output matrix. The model's own scales (`LanguageModel.scales`) multiply the settings; of_role: those that
    are wanted.
    """
    scales: dict[str, Scales] = getattr(model, "scales", {})
    roles = roles_of(model)
    found: dict[tuple[bool, float, float, float], list[nn.Parameter]] = {}
    by_dimensions = sorted(model.named_parameters(), key=lambda each: each[1].ndim < 2)
    for name, parameter in by_dimensions:
        if not parameter.requires_grad or not of_role(roles[name]):
            continue
        own = scales.get(name, STANDARD)
        factor = own.lr * getattr(config, f"lr_factor_{roles[name]}")
        decays = parameter.ndim >= 2
        found.setdefault((decays, factor, own.weight_decay, own.eps), []).append(parameter)
    return [
        {
            "params": parameters,
            "weight_decay": config.weight_decay * decay if decays else 0.0,
            "eps": config.eps * eps,
            "lr_factor": factor,
        }
        for (decays, factor, decay, eps), parameters in found.items()
    ]


def set_lr(groups: list[dict[str, Any]], lr: float, *, in_fp32: bool = False) -> None:
    """Give each group its learning rate of a step whose rate is `lr`.

    Args:
        in_fp32: round it to fp32, as a rate that is a tensor on the device.
    """
    for group in groups:
        own = lr * group["lr_factor"]
        group["lr"] = c_float(own).value if in_fp32 else own
