"""An ensemble as the runs that it is: each a configuration like any other."""

from __future__ import annotations

import dataclasses
from dataclasses import fields
from itertools import product
from typing import Any

from conf.keys import keys, keys_of
from conf.own_parts.in_use import parts_in_use
from conf.schema import AUTO, Config, Ensemble
from conf.values import convert
from experiment_utils.errors import Problem, UserError

VARIED = {field.name: field.metadata["doc"].removesuffix(" of each") for field in fields(Ensemble)}
del VARIED["together"]
"""Key of `ensemble=` to the key of a run whose values it lists."""

_NULL = ("None", "null")
_ONE_BY_ONE = ("optimizer", "metric", "callback", "step", "arch_option")
"""Kinds of the user's parts that serve one run at a time."""


def is_ensemble(config: Config) -> bool:
    """Whether it asks for several runs as one program."""
    return bool(_given(config))


def members_of(config: Config) -> list[Config]:
    """The runs of an ensemble, the last list varying fastest; of no ensemble the run itself.

    Raises:
        UserError: values that are none of their keys.
    """
    given, problems = _values(config)
    if problems:
        raise UserError(*problems)
    alone = dataclasses.replace(config, ensemble=Ensemble(together=config.ensemble.together))
    found = []
    for values in product(*given.values()):
        member = alone
        for name, value in zip(given, values, strict=True):
            member = _with(member, VARIED[name], value)
        found.append(member)
    return found


def _given(config: Config) -> dict[str, list[str]]:
    return {name: getattr(config.ensemble, name) for name in VARIED if getattr(config.ensemble, name)}


def _values(config: Config) -> tuple[dict[str, list[Any]], list[Problem]]:
    """The values of each key that is given, and what is wrong with them."""
    found: dict[str, list[Any]] = {}
    problems = []
    for name, texts in _given(config).items():
        key, where = keys()[VARIED[name]], f"ensemble.{name}"
        found[name] = []
        for text in texts:
            try:
                value = convert(key, None if text in _NULL else text)
            except ValueError as error:
                problems.append(Problem(where, f"{text}: {error} ({key.path})"))
                continue
            if value in found[name]:
                problems.append(Problem(where, f"{text} is given twice; two runs would be the same"))
            found[name].append(value)
    return found, problems


def _with(config: Config, path: str, value: Any) -> Config:
    section, _, name = path.rpartition(".")
    if not section:
        return dataclasses.replace(config, **{name: value})
    part = dataclasses.replace(getattr(config, section), **{name: value})
    return dataclasses.replace(config, **{section: part})


def not_a_number_of_members(path: str) -> Problem:
    """The problem of a key below `ensemble.` that there is none of."""
    name = path.removeprefix("ensemble.")
    what = f"runs of an ensemble differ in {', '.join(VARIED)}"
    there = [known for known in keys() if known.rpartition(".")[2] == name]
    if not there:
        return Problem(path, f"no such key: {what}")
    return Problem(
        path,
        f"{what}: they share shapes, data and all else, so as to be one program. Sweep it: -m {there[0]}=A,B",
    )


def ensemble_problems(config: Config) -> list[Problem]:
    """What an ensemble cannot be of, each with the reason; and what is wrong with one of its runs."""
    if not is_ensemble(config):
        if config.ensemble.together == AUTO:
            return []
        lists = ", ".join(f"ensemble.{key.name}" for key in keys_of("ensemble")[:2])
        return [Problem("ensemble.together", f"it is of an ensemble, which a list such as {lists} makes")]
    given, problems = _values(config)
    problems += _seeds_said_twice(config, given)
    problems += _warmup_said_twice(config, given)
    problems += _not_together(config)
    return problems


def _seeds_said_twice(config: Config, given: dict[str, list[Any]]) -> list[Problem]:
    """`seed` says what both others are, where they do not."""
    if "seed" not in given:
        return []
    said = [name for name in ("seed_init", "seed_data") if name in given or getattr(config, name) is not None]
    if len(said) < 2:
        return []
    return [
        Problem("ensemble.seed", f"{' and '.join(said)} are given too, so that it says nothing. Take it away")
    ]


def _warmup_said_twice(config: Config, given: dict[str, list[Any]]) -> list[Problem]:
    """A warm-up in steps or tokens stands in the place of a share, so that all shares would be one run."""
    instead = [
        name
        for name in ("warmup_steps", "warmup_tokens")
        if name in given or getattr(config.schedule, name) is not None
    ]
    if "warmup_fraction" not in given or not instead:
        return []
    what = f"{instead[0]} is given too, in whose place it says nothing. Take one of the two away"
    return [Problem("ensemble.warmup_fraction", what)]


def _not_together(config: Config) -> list[Problem]:
    arch, training, slurm = config.arch, config.training, config.slurm
    alone = "Run them one by one: sweep with -m instead of ensemble."
    wrong: list[tuple[str, bool, str]] = [
        ("arch.family", arch.family != "transformer", f"{arch.family}: no batched form. {alone}"),
        ("arch.n_experts", arch.n_experts is not None, f"experts have no batched form. {alone}"),
        (
            "arch.dropout_attention",
            arch.dropout_attention > 0,
            "attention draws what it drops for all runs together, so that none would be as it is alone. Use "
            "arch.dropout_residual, or sweep with -m instead of ensemble.",
        ),
        (
            "plugins",
            any(part.kind in _ONE_BY_ONE for part in parts_in_use(config)),
            f"parts of your own have no batched form. {alone}",
        ),
        (
            "training.activation_checkpointing",
            bool(training.activation_checkpointing) and any((arch.dropout_embedding, arch.dropout_residual)),
            "what is computed again would drop other numbers. Use false, or no dropout",
        ),
        ("training.compile", training.compile, "true: the batched form is not compiled. Use false"),
        (
            "training.precision",
            training.precision == "fp16",
            "fp16: all runs have one loss. Use bf16",
        ),
        (
            "training.cuda_graph",
            training.cuda_graph is True,
            f"true: of several runs the passes alone can be a graph. Use auto. {alone}",
        ),
        (
            "training.profile",
            training.profile is not None,
            "a trace is of one run. Take it away, or run one of them by itself",
        ),
        (
            "training.on_spike",
            training.on_spike not in ("none", "skip"),
            f"{training.on_spike}: the steps of an ensemble go forward together. Use skip, or none",
        ),
        ("memory.attribute", config.memory.attribute, "true: it tells of one run. Take it away"),
        (
            "slurm.nodes",
            slurm.nodes > 1,
            f"{slurm.nodes}: an ensemble is one process on one device. Use 1, or -m instead of ensemble.",
        ),
        (
            "slurm.tasks_per_node",
            slurm.tasks_per_node not in (AUTO, 1),
            f"{slurm.tasks_per_node}: an ensemble is one process on one device. Use 1",
        ),
        (
            "slurm.gpus_per_node",
            slurm.gpus_per_node > 1,
            f"{slurm.gpus_per_node}: an ensemble is one process on one device. Use 1",
        ),
        ("slurm.pack", slurm.pack > 1, f"{slurm.pack}: the runs of an ensemble share a task already. Use 1"),
        ("slurm.workers", slurm.workers is not None, "workers take runs one by one. Take it away"),
    ]
    return [Problem(where, f"{what} (ensemble)") for where, is_wrong, what in wrong if is_wrong]


def said_twice(typed: dict[str, Any]) -> list[Problem]:
    """Keys that are given beside the list of their values. typed: config paths."""
    return [
        Problem(path, f"ensemble.{name} says what it is of each run. Take one of the two away")
        for name, path in VARIED.items()
        if path in typed and f"ensemble.{name}" in typed
    ]
