"""`slurm.by_model`: what runs of one size ask of the cluster, where it is not what the others ask.

    slurm.by_model={256d: {mem: 64GB, time: 12:00:00}}    or    slurm.by_model.256d.mem=64GB

A mapping of sizes to keys of `slurm`. What is given is merged into what the site's file has, and a key typed
for all runs (`slurm.mem=8GB`) goes before what the file says of one size. `settle` puts it in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from conf.keys import keys_of
from conf.schema import Config
from conf.schema_key import Key
from conf.sizes import size_name
from conf.suggestions import natural, nearest, no_such
from conf.values import convert
from experiment_utils.errors import Problem

BY_MODEL = "slurm.by_model"
OF_ALL_RUNS = ("name", "by_model", "workers", "confirm", "require_clean")
"""Keys of `slurm` that say something of the whole submission: not of one size."""


def is_mapping(key: Key) -> bool:
    """Whether its values are mappings."""
    return key.types == (dict,)


def convert_by_model(value: Any) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """The mapping with every inner value as its key's type, and all that is wrong with it."""
    if value is None:
        return {}, []
    if not isinstance(value, Mapping):
        what = f"expected a mapping such as {BY_MODEL}={{256d: {{mem: 64GB}}}}, got `{value}`"
        return {}, [Problem(BY_MODEL, what)]
    converted: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    known = {key.name: key for key in keys_of("slurm") if key.name not in OF_ALL_RUNS}
    for size, given in value.items():
        if not isinstance(given, Mapping):
            what = f"expected keys of slurm such as {{mem: 64GB}}, got `{given}`"
            problems.append(Problem(f"{BY_MODEL}.{size}", what))
            continue
        of_size = converted.setdefault(str(size), {})
        for name, inner in given.items():
            where, key = f"{BY_MODEL}.{size}.{name}", known.get(str(name))
            if key is None:
                problems.append(Problem(where, _no_such_key(str(name), known)))
                continue
            try:
                # `time: 90` is a number to yaml and to Hydra alike
                is_number = isinstance(inner, int | float) and not isinstance(inner, bool)
                of_size[key.name] = convert(key, str(inner) if key.is_text and is_number else inner)
            except ValueError as error:
                problems.append(Problem(where, str(error)))
    return converted, problems


def unknown_sizes(configs: Iterable[Config], options: Iterable[str]) -> list[Problem]:
    """Sizes in `slurm.by_model` that are no option of `model` and none of these runs'."""
    configs = list(configs)
    known = {*options, *(config.model.name for config in configs), *(size_name(c.model) for c in configs)}
    named = dict.fromkeys(size for config in configs for size in config.slurm.by_model)
    return [
        Problem(f"{BY_MODEL}.{size}", no_such("size", size, sorted(known, key=natural)))
        for size in named
        if size not in known
    ]


def merged(before: Any, given: Any) -> Any:
    """One mapping in another, key by key; nothing that is given is changed."""
    if not isinstance(before, Mapping) or not isinstance(given, Mapping):
        return given
    whole = {str(name): value for name, value in before.items()}
    return whole | {str(name): merged(whole.get(str(name)), value) for name, value in given.items()}


def without(by_model: Any, names: Iterable[str]) -> Any:
    """The mapping less these inner keys."""
    left_out = set(names)
    if not left_out or not isinstance(by_model, Mapping):
        return by_model
    return {
        size: {name: value for name, value in given.items() if name not in left_out}
        if isinstance(given, Mapping)
        else given
        for size, given in by_model.items()
    }


def settle(config: Config) -> Config:
    """The same run with what its size asks for in its place in `slurm`, and nothing left in by_model.

    A size is meant by the name of its option, or by what it is called (`64d-2layers`); the option's name goes
    before.
    """
    by_model = config.slurm.by_model
    if not by_model:
        return config
    asked = {**by_model.get(size_name(config.model), {}), **by_model.get(config.model.name, {})}
    return dataclasses.replace(config, slurm=dataclasses.replace(config.slurm, **{**asked, "by_model": {}}))


def _no_such_key(name: str, known: Mapping[str, Key]) -> str:
    if name in OF_ALL_RUNS:
        return f"is of the whole submission: slurm.{name}=VALUE"
    close = nearest(name, known)
    return "no such key of slurm" + (
        f"; nearest: {', '.join(close)}" if close else f"; choices: {' '.join(known)}"
    )
