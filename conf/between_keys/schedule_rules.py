"""What each schedule can be told."""

from __future__ import annotations

from conf.schema import Config, Schedule
from experiment_utils.errors import Problem

SCHEDULES_WITHOUT_WARMUP = ("constant", "cosine")
WITHOUT_AN_END = ("inverse_sqrt", "transformer")
"""Their lr follows from the step alone, not from the length of the run."""

_OF_OPTIONS = (0.0, 0.3, Schedule().warmup_fraction)
"""Shares that nobody typed: the defaults of the options of conf/schedule."""


def one_warmup(config: Config) -> list[Problem]:
    """No schedule ignores a warm-up that was asked for, and its length is given once."""
    schedule = config.schedule
    given = [name for name in ("warmup_steps", "warmup_tokens") if getattr(schedule, name) is not None]
    if schedule.name in SCHEDULES_WITHOUT_WARMUP:
        asked = [name for name in ("warmup_fraction", *given) if getattr(schedule, name)]
        return [
            Problem(
                f"schedule.{name}",
                f"schedule={schedule.name} has no warm-up: use schedule=cosine_warmup or linear_warmup, or "
                f"schedule.{name}={'0' if name == 'warmup_fraction' else 'null'}",
            )
            for name in asked
        ]
    if len(given) == 2:
        return [
            Problem(
                "schedule.warmup_tokens",
                f"schedule.warmup_steps={schedule.warmup_steps} is given too. Take one of them away (=null)",
            )
        ]
    if given and schedule.warmup_fraction not in _OF_OPTIONS:
        return [
            Problem(
                f"schedule.{given[0]}",
                f"schedule.warmup_fraction={schedule.warmup_fraction:g} is given too. Take one of them away",
            )
        ]
    return []


def only_what_its_shape_has(config: Config) -> list[Problem]:
    """No schedule ignores how its lr is asked to fall."""
    schedule, plain, problems = config.schedule, Schedule(), []
    for name in ("decay_fraction", "decay_shape"):
        if schedule.name != "wsd" and getattr(schedule, name) != getattr(plain, name):
            problems.append(
                Problem(
                    f"schedule.{name}",
                    f"it is of schedule=wsd; {schedule.name} falls from its peak to the end",
                )
            )
    endless = (*WITHOUT_AN_END, "stable", "constant")
    if schedule.name in endless and schedule.final_lr_fraction != plain.final_lr_fraction:
        problems.append(
            Problem(
                "schedule.final_lr_fraction",
                f"{schedule.name} does not fall to an end of its own. Take it away",
            )
        )
    if schedule.name == "one_cycle" and schedule.final_lr_fraction == 0:
        problems.append(
            Problem(
                "schedule.final_lr_fraction",
                "the last step of one_cycle has it: expected above 0",
            )
        )
    both = schedule.warmup_fraction + schedule.decay_fraction
    if schedule.name == "wsd" and schedule.warmup_steps is schedule.warmup_tokens is None and both > 1:
        problems.append(
            Problem(
                "schedule.decay_fraction",
                f"warm-up and decay are {both:g} of the run: schedule.warmup_fraction and "
                "schedule.decay_fraction are at most 1 together",
            )
        )
    return problems
