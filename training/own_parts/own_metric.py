"""Metrics of the user's: columns of metrics.csv, and fields of evals.jsonl.

Contract: `FUNCTION(logits, labels, options)` is called at evaluations with some windows: logits fp32
(windows, seq, vocab), labels int64 (windows, seq), in which -100 does not count. It returns a value for each
label (windows, seq), or a number, their mean over the labels that count. The metric is the mean over all.
With `at="step"`, `FUNCTION(view, options)` is called with a StepView after each optimizer step and returns a
number, or a scalar tensor, which is read later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conf import Config
from conf.own_parts.in_use import parts_in_use
from conf.own_parts.load import code_of, options_of
from conf.parts_table import Part
from experiment_utils.errors import Problem, UserError
from models import LanguageModel
from models.loss.lm_loss import IGNORED
from training.own_parts.step_view import Guard, StepView

EVALUATION, STEP = "evaluation", "step"


@dataclass(frozen=True)
class Metric:
    """A registered metric of a run."""

    part: Part
    code: Any
    options: Any
    unit: str
    at: str
    """EVALUATION or STEP: when it is computed."""


def metrics_of(config: Config, at: str | None = None) -> list[Metric]:
    """Metrics of a configuration in its order; at: only those of evaluations, or of steps."""
    found = []
    for part in (one for one in parts_in_use(config) if one.kind == "metric"):
        registered = code_of("metric", part.name)
        unit, when = str(registered.facts["unit"]), str(registered.facts["at"])
        found.append(Metric(part, registered.code, options_of(config, part), unit, when))
    return [one for one in found if at in (None, one.at)]


def header_of(config: Config) -> dict[str, dict[str, str]]:
    """Name of each metric to its unit and its time (`at`), for run.json."""
    return {one.part.name: {"unit": one.unit, "at": one.at} for one in metrics_of(config)}


class MetricSums:
    """Sums of metrics over the labels of an evaluation.

    Args:
        chunk: tokens whose logits are computed together; at least a window.
    """

    def __init__(self, metrics: Sequence[Metric], model: LanguageModel, guard: Guard, chunk: int) -> None:
        self._metrics, self._model, self._guard, self._chunk = metrics, model, guard, chunk
        device = next(model.parameters()).device
        self.sums = torch.zeros(len(metrics), dtype=torch.float64, device=device)

    def add(self, hidden: Tensor, labels: Tensor) -> None:
        """Add a batch: hidden states (or logits) of the model, and labels (batch, seq)."""
        at_once = max(1, self._chunk // labels.shape[1])
        for states, targets in zip(hidden.split(at_once), labels.split(at_once), strict=True):
            logits = self._model.logits(states).float()
            for place, one in enumerate(self._metrics):
                value = self._guard.call(one.part, one.code, logits, targets, one.options)
                self.sums[place] += sum_over_labels(one.part, value, targets)

    def means(self, labels: int) -> dict[str, float]:
        """The metrics by name, given the number of labels that count."""
        values = (self.sums / labels).tolist()
        return {one.part.name: value for one, value in zip(self._metrics, values, strict=True)}


def sum_over_labels(part: Part, value: Any, labels: Tensor) -> Tensor:
    """Sum over the labels that count of what a metric returned for them: fp64 scalar.

    Raises:
        UserError: it is neither a number nor a value for each label.
    """
    counts = labels != IGNORED
    if is_number(value):
        total, number = torch.as_tensor(value, device=labels.device).double(), counts.sum()
        return torch.where(number > 0, total * number, 0.0)
    if isinstance(value, Tensor) and value.shape == labels.shape and not value.is_complex():
        return torch.where(counts, value.double(), 0.0).sum()
    what = f"metric {part.name} returned {described(value)}; expected a number, or a tensor "
    raise UserError(Problem(part.place, f"{what}{tuple(labels.shape)}: (windows, seq)", "metric-value"))


def values_at_step(metrics: Sequence[Metric], guard: Guard, view: StepView) -> Tensor:
    """Values of metrics after a step: fp64 (metrics,), on the device of its loss.

    Raises:
        UserError: a metric returns no number.
    """
    found = []
    for one in metrics:
        value = guard.call(one.part, one.code, view, one.options)
        if not is_number(value):
            what = f"metric {one.part.name} returned {described(value)}; expected a number or a scalar tensor"
            raise UserError(Problem(one.part.place, what, "metric-value"))
        found.append(torch.as_tensor(value, dtype=torch.float64, device=view.loss.device).detach())
    return torch.stack(found)


def is_number(value: Any) -> bool:
    """Whether it is a real number or a scalar tensor of one."""
    if isinstance(value, Tensor):
        return value.ndim == 0 and not value.is_complex()
    return isinstance(value, int | float)


def described(value: Any) -> str:
    """Shape of a tensor, type of anything else."""
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
