"""A run as the user's metrics and callbacks see it, and the guard around each of their calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from conf.own_parts.call import called
from conf.parts_table import Part
from experiment_utils.errors import Problem, UserError


@dataclass(frozen=True)
class StepView:
    """A run after an optimizer step. What it holds is to be read and not to be changed."""

    step: int
    """Optimizer steps done, from 1."""
    total_steps: int
    """Optimizer steps of the whole run."""
    tokens: int
    """Tokens trained on since the start of the run."""
    loss: Tensor
    """Mean loss of the step, nats a token: fp32 scalar on the device; reading it waits for a GPU."""
    grad_norm: Tensor
    """Norm of the gradient before clipping: fp32 scalar on the device."""
    lr: float
    """Learning rate of the step."""
    model: nn.Module
    """The model; a registered one is `model.own`. In `on_step` parameters have their clipped gradients."""
    optimizer: torch.optim.Optimizer
    """The optimizer, with the moments of this step."""
    folder: Path
    """Folder for the files of a callback: RUN/own/NAME."""
    val_loss: float | None = None
    """Loss of the newest evaluation, nats a token; None before the first."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Registered metrics of the newest evaluation, by name."""


class Guard:
    """Calls of the user's code that leave the run as it was: random numbers, weights, training mode."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._tensors = [*model.parameters(), *model.buffers()]

    @torch.no_grad()
    def call(self, part: Part, code: Any, *arguments: Any) -> Any:
        """Call the code without gradients and return its result.

        Raises:
            UserError: it raises an exception, or changes a weight; names FILE:LINE.
        """
        given = [one for one in arguments if isinstance(one, torch.Tensor)]
        before, was_training = self._versions(given), self._model.training
        with torch.random.fork_rng(devices=_gpus_in_use(), device_type="cuda"):
            found = called(part, code, *arguments)
        if self._model.training != was_training:
            self._model.train(was_training)
        if self._versions(given) != before:
            what = f"{part.kind} {part.name} changed weights, buffers or a tensor that it can only read"
            raise UserError(Problem(part.place, what, "part-changes-weights"))
        return found

    def _versions(self, given: list[torch.Tensor]) -> list[int]:
        """Count of in-place changes of each tensor; those through `.data` do not count."""
        return [one._version for one in (*self._tensors, *given)]


def _gpus_in_use() -> list[int]:
    return [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
