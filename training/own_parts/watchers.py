"""Metrics and callbacks of a run: when each is called, and what it sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training.own_parts.own_callback import Callbacks, callbacks_of
from training.own_parts.own_metric import EVALUATION, STEP, MetricSums, metrics_of, values_at_step
from training.own_parts.step_view import Guard, StepView

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from models import LanguageModel
    from training.checkpoint.checkpoints import Checkpoint
    from training.run.loop import Run
    from training.step.train_step import StepResult

FOLDER = "own"
"""Folder in a run's for the files of its callbacks."""


class Watchers:
    """The metrics and callbacks of a run. Of several ranks, only the first calls what is no evaluation."""

    def __init__(self, run: Run, model: LanguageModel, optimizer: torch.optim.Optimizer) -> None:
        self._run, self._model, self._optimizer = run, model, optimizer
        self._guard = Guard(model)
        self._of_evaluations = metrics_of(run.config, EVALUATION)
        self._of_steps = metrics_of(run.config, STEP)
        is_first = run.ranks.is_first
        self._callbacks = Callbacks(run.config, self._guard, run.folder / FOLDER) if is_first else None
        self._view: StepView | None = None
        self._measured: dict[str, float] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of metrics.csv: those of steps first."""
        return tuple(one.part.name for one in (*self._of_steps, *self._of_evaluations))

    def after_step(self, found: StepResult, lr: float, step: int) -> Mapping[str, Tensor]:
        """Values of the metrics of this step; callbacks are called. Gradients are still there.

        Args:
            step: its number, from 1.
        """
        if self._callbacks is None:
            return {}
        self._view = StepView(
            step=step,
            total_steps=self._run.plan.budget.steps,
            tokens=step * self._run.plan.budget.batch_tokens,
            loss=found.loss.detach(),
            grad_norm=found.grad_norm.detach(),
            lr=lr,
            model=self._model,
            optimizer=self._optimizer,
            folder=self._run.folder / FOLDER,
            val_loss=self._run.val_loss,
            metrics=self._measured,
        )
        names = [one.part.name for one in self._of_steps]
        values = values_at_step(self._of_steps, self._guard, self._view) if names else ()
        self._callbacks.handle("on_step", self._view)
        return dict(zip(names, values, strict=True))

    def sums(self, chunk: int) -> MetricSums | None:
        """Sums for the metrics of an evaluation; None without any. chunk: tokens of logits at a time."""
        metrics = self._of_evaluations
        return MetricSums(metrics, self._model, self._guard, chunk) if metrics else None

    def after_evaluation(self, measured: Mapping[str, float]) -> None:
        """Call `on_eval`; `measured` are the metrics of this evaluation."""
        self._measured = dict(measured)
        self._handle("on_eval")

    def before_checkpoint(self) -> None:
        """Call `on_checkpoint`."""
        self._handle("on_checkpoint")

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """State of the callbacks for a checkpoint: tensors by name, and plain values by callback."""
        tensors, values = self._callbacks.state() if self._callbacks is not None else ({}, {})
        return tensors, {**({"callbacks": values} if values else {}), "own_metrics": self._measured}

    def load(self, checkpoint: Checkpoint) -> None:
        """Restore the state of the callbacks."""
        self._measured = dict(checkpoint.state.get("own_metrics", {}))
        if self._callbacks is not None:
            self._callbacks.load(checkpoint)

    def _handle(self, event: str) -> None:
        if self._callbacks is None or self._view is None:
            return
        view = replace(self._view, val_loss=self._run.val_loss, metrics=self._measured)
        self._callbacks.handle(event, view)
        self._model.zero_grad(set_to_none=True)  # of a backward pass of theirs


def watchers_of(run: Run, model: LanguageModel, optimizer: torch.optim.Optimizer) -> Watchers | None:
    """The metrics and callbacks of a run; None if it has none."""
    if not (metrics_of(run.config) or callbacks_of(run.config)):
        return None
    return Watchers(run, model, optimizer)
