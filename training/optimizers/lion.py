"""Lion, evolved sign momentum (Chen et al., arXiv:2302.06675, algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Lion(torch.optim.Optimizer):
    """`w -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay w)`, then `m = beta2 m + (1 - beta2) g`."""

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        if closure is not None:
            raise ValueError("closures are not called here: compute gradients, then step()")
        for group in self.param_groups:
            weights = [parameter for parameter in group["params"] if parameter.grad is not None]
            if weights:
                self._move(weights, group)
        return None

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["exp_avg"] = torch.zeros_like(weight)
        averages = [self.state[weight]["exp_avg"] for weight in weights]
        updates = torch._foreach_lerp(averages, gradients, 1 - beta1)
        torch._foreach_sign_(updates)
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-group["lr"])
        torch._foreach_lerp_(averages, gradients, 1 - beta2)
