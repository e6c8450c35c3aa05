"""The learning rate of every step, as a function of the step alone. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from conf import Config
from conf.budget import Budget
from conf.own_parts.call import called
from conf.own_parts.load import own_part
from conf.schema import Schedule

ONE_CYCLE_START = 1 / 25
"""Of the peak, that the first step of one_cycle has: torch's div_factor."""


@dataclass(frozen=True)
class Length:
    """Steps of a run: all of it, those that rise, and the one from which on it falls."""

    total: int
    warmup: int
    decay_from: int


Rise = Callable[[int, Length], float]


def _line_up(step: int, length: Length) -> float:
    return (step + 1) / length.warmup


def _half_cosine_up(step: int, length: Length) -> float:
    share = step / max(1, length.warmup - 1) if length.warmup > 1 else 1.0
    return 1 - (1 - ONE_CYCLE_START) * _cosine(share)


def _cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * share))


def _linear(share: float) -> float:
    return 1 - share


def _sqrt(share: float) -> float:
    return 1 - math.sqrt(share)


DECAYS: dict[str, Callable[[float], float]] = {"sqrt": _sqrt, "linear": _linear, "cosine": _cosine}
"""What is left of the fall at a share in [0, 1] of its steps. 1 - sqrt: Haegele et al., arXiv:2405.18392."""


@dataclass(frozen=True)
class Shape:
    """rise: of the peak, in the steps of the warm-up; None: there is none. decay: of what lies between peak
    and final lr; None: what `decay_shape` says. by_step: falls as one over the root of the step, to no end.
    """

    rise: Rise | None = _line_up
    decay: Callable[[float], float] | None = _cosine
    by_step: bool = False
    ends_at_last_step: bool = False

    @property
    def warms_up(self) -> bool:
        return self.rise is not None


SCHEDULES: dict[str, Shape] = {
    "constant": Shape(rise=None, decay=lambda share: 1.0),
    "cosine": Shape(rise=None),
    "cosine_warmup": Shape(),
    "linear_warmup": Shape(decay=_linear),
    "inverse_sqrt": Shape(by_step=True),
    "one_cycle": Shape(rise=_half_cosine_up, ends_at_last_step=True),
    "transformer": Shape(by_step=True),
    "wsd": Shape(decay=None),
    "stable": Shape(decay=lambda share: 1.0),
}
"""Cosine: Loshchilov & Hutter, arXiv:1608.03983, without restarts; with linear warm-up as in GPT-3,
Brown et al., arXiv:2005.14165, appendix B. Linear: Devlin et al., arXiv:1810.04805. inverse_sqrt: as in T5,
Raffel et al., arXiv:1910.10683. transformer: Vaswani et al., arXiv:1706.03762, 5.3. one_cycle: Smith & Topin,
arXiv:1708.07120, as torch's OneCycleLR. wsd, warm-up, stable, decay: Hu et al., arXiv:2404.06395; stable: no
decay."""


@dataclass(frozen=True)
class Course:
    """The learning rate over one run. peak: of its warm-up's last step."""

    peak: float
    schedule: Schedule
    length: Length
    own: Callable[[int, int, int], float] | None = None
    """A schedule of the user's: share of the peak at (step, total steps, warm-up steps)."""

    def lr_at(self, step: int) -> float:
        """Of the step with this number, from 0; `step == total` is the end of the run.

        A warm-up of W steps in a line: `peak (step + 1) / W`, so the first step moves and step W - 1 has the
        peak. Then from the peak at step W (of wsd: at the step at which it begins to fall) down to
        `final_lr_fraction * peak` at the end, which the last step comes just short of: no step of a run has a
        learning rate of 0. one_cycle is as torch has it: its last step has the end.

        Raises:
            ValueError: the step lies outside of the run.
        """
        length = self.length
        if not 0 <= step <= length.total:
            raise ValueError(f"step {step} of a run of {length.total} steps")
        if self.own is not None:
            return self.peak * self.own(step, length.total, length.warmup)
        shape = SCHEDULES[self.schedule.name]
        if shape.rise is not None and step < length.warmup:
            return self.peak * shape.rise(step, length)
        if shape.by_step:
            return self.peak * math.sqrt(max(1, length.warmup) / (step + 1))
        share = (step - length.decay_from) / max(1, length.total - length.decay_from)
        if shape.ends_at_last_step:
            top = max(0, length.warmup - 1)
            share = min(1.0, (step - top) / max(1, length.total - 1 - top))
        decay = shape.decay or DECAYS[self.schedule.decay_shape]
        left = decay(max(0.0, share))
        return self.peak * (1 - (1 - self.schedule.final_lr_fraction) * (1 - left))


def course_of(config: Config, budget: Budget) -> Course:
    """The course of a run: its peak is optimizer.lr; of `transformer` that times (d_model * warm-up)^-0.5."""
    schedule = config.schedule
    length = _length(schedule, budget)
    peak = config.optimizer.lr
    if schedule.name == "transformer":
        peak *= (config.model.d_model * max(1, length.warmup)) ** -0.5
    return Course(peak, schedule, length, None if schedule.name in SCHEDULES else own_rate(config))


def own_rate(config: Config) -> Callable[[int, int, int], float]:
    """The schedule of the user's that a configuration names. Its plugin has to be there at the first call."""

    @cache
    def function() -> Callable[..., float]:
        found = own_part(config, "schedule")
        assert found is not None
        part, registered, options = found
        return lambda *place: called(part, registered.code, *place, options)

    return lambda step, total, warmup: function()(step, total, warmup)


def _length(schedule: Schedule, budget: Budget) -> Length:
    warmup = warmup_steps(schedule, budget)
    decay_from = warmup
    if schedule.name == "wsd":
        decay_from = max(warmup, budget.steps - _falling_steps(schedule.decay_fraction, budget.steps))
    return Length(budget.steps, warmup, decay_from)


def _falling_steps(fraction: float, steps: int) -> int:
    """Of wsd. Rounded down: so a checkpoint at the first step that has read the other tokens is in time."""
    return max(math.floor(fraction * steps + 1e-9), 1 if fraction else 0)


def warmup_steps(schedule: Schedule, budget: Budget) -> int:
    """Steps with rising learning rate: as many as given, those that read so many tokens, or the share of the
    run, rounded. A run that is shorter ends while it rises.
    """
    if schedule.name in SCHEDULES and not SCHEDULES[schedule.name].warms_up:
        return 0
    if schedule.warmup_steps is not None:
        return schedule.warmup_steps
    if schedule.warmup_tokens is not None:
        return -(-schedule.warmup_tokens // budget.batch_tokens)
    return round(schedule.warmup_fraction * budget.steps)
