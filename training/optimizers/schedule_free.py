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

_COUNTS = ("steps", "lr_max", "weight_sum")


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """The parameters are y. `evaluated` gives x."""

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": 1e-8, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        if closure is not None:
            raise ValueError("closures are not called here: compute gradients, then step()")
        for group in self.param_groups:
            for weights in self._batches(group):
                self._move(weights, group)
        return None

    def _batches(self, group: dict[str, Any]) -> list[list[Tensor]]:
        """Parameters that one call of each kernel can move: on a device those with equal counts; on a CPU,
        where a call is cheap and what is worked on has to be in memory, one by one.
        """
        found: dict[object, list[Tensor]] = {}
        for y in group["params"]:
            if y.grad is None:
                continue
            state = self.state[y]
            if not state:
                state.update(z=y.clone(), exp_avg_sq=torch.zeros_like(y), steps=0, lr_max=0.0, weight_sum=0.0)
            key = id(y) if y.is_cpu else tuple(state[name] for name in _COUNTS)
            found.setdefault(key, []).append(y)
        return list(found.values())

    def _move(self, ys: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        states, lr = [self.state[y] for y in ys], group["lr"]
        gradients = [y.grad for y in ys if y.grad is not None]
        zs, squares = ([state[name] for state in states] for name in ("z", "exp_avg_sq"))
        steps, lr_max = states[0]["steps"] + 1, max(lr, states[0]["lr_max"])
        weight_sum = states[0]["weight_sum"] + lr_max**2
        share = lr_max**2 / weight_sum
        for state in states:
            state.update(steps=steps, lr_max=lr_max, weight_sum=weight_sum)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        sizes = torch._foreach_div(squares, 1 - beta2**steps)
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, group["eps"])
        moves = torch._foreach_div(gradients, sizes)
        torch._foreach_add_(moves, ys, alpha=group["weight_decay"])
        torch._foreach_lerp_(ys, zs, share)
        torch._foreach_add_(ys, moves, alpha=lr * (beta1 * (1 - share) - 1))
        torch._foreach_sub_(zs, moves, alpha=lr)

    @torch.no_grad()
    def evaluated(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter with the average x of it, a new tensor: `y + (1 - 1 / beta1) (z - y)`."""
        for group in self.param_groups:
            for y in group["params"]:
                z = self.state[y]["z"] if self.state.get(y) else y
                yield y, y.detach().lerp(z.detach(), 1 - 1 / group["betas"][0])
