"""What each optimizer can be told, and what goes with it."""

from __future__ import annotations

from conf.schema import Config, Optimizer
from experiment_utils.errors import Problem

_MOMENTS = ("beta1", "beta2", "eps")
SETTINGS_OF: dict[str, tuple[str, ...]] = {
    "adamw": _MOMENTS,
    "adam": _MOMENTS,
    "sgd": ("momentum", "nesterov"),
    "rmsprop": ("beta2", "eps", "momentum"),
    "adagrad": ("eps",),
    "lion": ("beta1", "beta2"),
    "muon": (*_MOMENTS, "momentum", "nesterov", "muon_scale"),
    "adafactor": (),
    "schedule_free": _MOMENTS,
}
"""Beside lr, weight_decay and grad_clip, which all of them have."""


def only_what_it_has(config: Config) -> list[Problem]:
    """No setting is given to an optimizer that would not look at it."""
    optimizer, plain = config.optimizer, Optimizer()
    if optimizer.name not in SETTINGS_OF:  # of the user's, which gets all of them
        return []
    its = SETTINGS_OF[optimizer.name]
    problems = []
    for name in dict.fromkeys(name for names in SETTINGS_OF.values() for name in names):
        if name in its or getattr(optimizer, name) == getattr(plain, name):
            continue
        have = ", ".join(other for other, names in SETTINGS_OF.items() if name in names)
        problems.append(
            Problem(
                f"optimizer.{name}",
                f"optimizer={optimizer.name} has none; these have: {have}. Take it away, or choose one",
            )
        )
    if "momentum" in its and "nesterov" in its and optimizer.nesterov and optimizer.momentum == 0:
        problems.append(
            Problem("optimizer.nesterov", "it looks ahead by optimizer.momentum, which is 0: 0.9 is usual")
        )
    if optimizer.name == "schedule_free" and optimizer.beta1 == 0:
        problems.append(Problem("optimizer.beta1", "it says how far weights lean to their average: above 0"))
    return problems


def no_stacked_matrices(config: Config) -> list[Problem]:
    """torch's Muon takes matrices, and the experts of a block are stacked."""
    if config.optimizer.name != "muon" or config.arch.n_experts is None:
        return []
    return [
        Problem(
            "optimizer.name", "muon takes matrices one by one, and experts are stacked. Use optimizer=adamw"
        )
    ]


def one_average(config: Config) -> list[Problem]:
    """Schedule-free averages already."""
    if config.training.ema is None or config.optimizer.name != "schedule_free":
        return []
    return [
        Problem("training.ema", "optimizer=schedule_free has an average of its own. Take one of them away")
    ]


def factor_of_a_parameter_there_is(config: Config) -> list[Problem]:
    """A tied head is the embedding, whose factor it has."""
    if config.optimizer.lr_factor_output == 1 or not config.arch.tied_head:
        return []
    return [
        Problem(
            "optimizer.lr_factor_output",
            "the head is tied to the embedding. Use lr_factor_embedding or arch.tied_head=false",
        )
    ]


def free_of_a_schedule(config: Config) -> list[Problem]:
    """Schedule-free's average stands for the decay; two of them would work against each other."""
    schedule = config.schedule
    if config.optimizer.name != "schedule_free" or schedule.name in ("constant", "stable"):
        return []
    return [
        Problem(
            "schedule",
            f"{schedule.name} lowers the lr, in whose place optimizer=schedule_free has an average. "
            "Use schedule=stable (warm-up, then the peak), or schedule=constant",
        )
    ]
