"""The learning rate of every step, as a function of the step alone. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from conf.schema import Optimizer, Schedule


@dataclass(frozen=True)
class Shape:
    """warms_up: rises first. decay: fraction of the decay that is left at a share in [0, 1] of its steps."""

    warms_up: bool
    decay: Callable[[float], float]


def _none(share: float) -> float:
    return 1.0


def _cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * share))


def _linear(share: float) -> float:
    return 1 - share


SCHEDULES: dict[str, Shape] = {
    "constant": Shape(warms_up=False, decay=_none),
    "cosine": Shape(warms_up=False, decay=_cosine),
    "cosine_warmup": Shape(warms_up=True, decay=_cosine),
    "linear_warmup": Shape(warms_up=True, decay=_linear),
}
"""Cosine: Loshchilov & Hutter, arXiv:1608.03983, without restarts; with linear warm-up as in GPT-3,
Brown et al., arXiv:2005.14165, appendix B. Linear: Devlin et al., arXiv:1810.04805."""


def warmup_steps(total_steps: int, schedule: Schedule) -> int:
    """Steps with rising learning rate: the share of the run, rounded."""
    return round(schedule.warmup_fraction * total_steps) if SCHEDULES[schedule.name].warms_up else 0


def lr_at(step: int, total_steps: int, optimizer: Optimizer, schedule: Schedule) -> float:
    """Learning rate of the step with this number, from 0; `step == total_steps` is the end of the run.

    Warm-up of W steps: `lr (step + 1) / W`, so the first step moves and step W - 1 has the peak.
    Then from the peak at step W down to `final_lr_fraction * lr` at the end, which the last step
    comes just short of: no step of a run has a learning rate of 0.

    Raises:
        ValueError: the step lies outside of the run.
    """
    if not 0 <= step <= total_steps:
        raise ValueError(f"step {step} of a run of {total_steps} steps")
    warmup = warmup_steps(total_steps, schedule)
    if step < warmup:
        return optimizer.lr * ((step + 1) / warmup)
    share = (step - warmup) / max(1, total_steps - warmup)
    left = SCHEDULES[schedule.name].decay(share)
    return optimizer.lr * (1 - (1 - schedule.final_lr_fraction) * (1 - left))
