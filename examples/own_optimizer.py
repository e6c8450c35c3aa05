"""An optimizer and a schedule of one's own.

python experiments.py plugins=[examples/own_optimizer.py] optimizer=sign_sgd schedule=triangle
"""

from dataclasses import dataclass

import torch

from highwater import option, register


class SignSGD(torch.optim.Optimizer):
    """Signs of a moving average of gradients (Bernstein et al., arXiv:1802.04434)."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                average = self.state[weight].setdefault("average", torch.zeros_like(weight))
                average.lerp_(weight.grad, 1 - group["memory"])
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(average.sign(), alpha=-group["lr"])


@dataclass
class SignOptions:
    memory: float = option(0.9, "share of the last average that is kept", at_least=0, below=1)


@register.optimizer("sign_sgd", options=SignOptions)
def sign_sgd(groups, optimizer, options):
    """groups: parameters with weight_decay, eps, lr_factor. optimizer: keys such as optimizer.lr."""
    return SignSGD(groups, {"lr": optimizer.lr, "memory": options.memory})


@register.schedule("triangle")
def triangle(step, total_steps, warmup_steps, options):
    """Share of the peak learning rate at a step, from 0: up to the middle of the run, and down."""
    return 1 - abs(2 * (step + 1) / (total_steps + 1) - 1)
