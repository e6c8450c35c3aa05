"""Weights that are evaluated, where they are not the weights that are trained: an average of these.

With an average, evaluations, the best checkpoint, `model.safetensors` and what is made of it are of the
averaged weights. Those that are trained stand in `training.safetensors`, so that a run goes on exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from conf import Config
from training.distributed.parallel import like
from training.optimizers.schedule_free import ScheduleFreeAdamW


class Average(Protocol):
    """Of the parameters of a model."""

    def after_step(self, steps: int) -> None:
        """Take in the weights after so many steps."""

    def weights(self) -> dict[str, Tensor]:
        """The averaged parameters by name; not to be written to."""

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Go on from the whole averaged parameters of a checkpoint."""


class Ema:
    """Exponential moving average `a += (1 - d) (w - a)` after each step, from the initial weights on.

    d is `decay`, in the first steps (1 + t) / (10 + t) after t steps where that is less, as in TensorFlow's
    ExponentialMovingAverage: else a short run would be told by its initial weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._model = model
        self._averages = {name: p.detach().clone() for name, p in model.named_parameters()}

    def after_step(self, steps: int) -> None:
        weights = [p.detach() for p in self._model.parameters()]
        decay = min(self._decay, (1 + steps) / (10 + steps))
        torch._foreach_lerp_(list(self._averages.values()), weights, 1 - decay)

    def weights(self) -> dict[str, Tensor]:
        return self._averages

    def load(self, weights: Mapping[str, Tensor]) -> None:
        for name, average in self._averages.items():
            average.copy_(like(weights[name], average))


class OfScheduleFree:
    """What optimizer=schedule_free averages itself: it follows from its state."""

    def __init__(self, model: nn.Module, optimizer: ScheduleFreeAdamW) -> None:
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._optimizer = optimizer

    def after_step(self, steps: int) -> None:
        pass

    def weights(self) -> dict[str, Tensor]:
        return {self._names[id(parameter)]: x for parameter, x in self._optimizer.evaluated()}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        pass


def average_of(model: nn.Module, optimizer: torch.optim.Optimizer, config: Config) -> Average | None:
    """What the configuration evaluates, over the parameters as they are trained; None: these themselves."""
    if isinstance(optimizer, ScheduleFreeAdamW):
        return OfScheduleFree(model, optimizer)
    return Ema(model, config.training.ema) if config.training.ema is not None else None


@contextmanager
def evaluated(model: nn.Module, average: Average | None) -> Iterator[None]:
    """Within the block the model has its averaged weights; afterwards those it had, bit for bit."""
    if average is None:
        yield
        return
    aside = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    _put(model, average.weights())
    try:
        yield
    finally:
        _put(model, aside)


@torch.no_grad()
def _put(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    # FSDP2 leaves whole parameters behind a forward pass; its state_dict has the parts, which last.
    for name, tensor in model.state_dict().items():
        if name in weights:
            tensor.copy_(weights[name])
