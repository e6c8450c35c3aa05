"""Schedule-free AdamW (Defazio et al., arXiv:2405.15682, algorithm 1), after the authors' own code.

Gradients are taken at y = beta1 x + (1 - beta1) z. z makes the steps, x is the average of all z, each with
the square of its learning rate as weight, and it is x that is evaluated. Parameters hold y; x follows from y
and z, so that nothing more is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """The parameters are y. `evaluated` gives x."""

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": 1e-8, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, weight.grad, group)
        return None

    def _move(self, y: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        state, lr = self.state[y], group["lr"]
        if not state:
            state.update(z=y.clone(), exp_avg_sq=torch.zeros_like(y), steps=0, lr_max=0.0, weight_sum=0.0)
        z, squares = state["z"], state["exp_avg_sq"]
        state["steps"] += 1
        state["lr_max"] = max(lr, state["lr_max"])
        weight = state["lr_max"] ** 2
        state["weight_sum"] += weight
        share = weight / state["weight_sum"]
        squares.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        size = (squares / (1 - beta2 ** state["steps"])).sqrt_().add_(group["eps"])
        step = (gradient / size).add_(y, alpha=group["weight_decay"])
        y.lerp_(z, share).add_(step, alpha=lr * (beta1 * (1 - share) - 1))
        z.sub_(step, alpha=lr)

    @torch.no_grad()
    def evaluated(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter with the average x of it, a new tensor: `y + (1 - 1 / beta1) (z - y)`."""
        for group in self.param_groups:
            for y in group["params"]:
                z = self.state[y]["z"] if self.state.get(y) else y
                yield y, y.detach().lerp(z.detach(), 1 - 1 / group["betas"][0])
