"""A composed configuration held against the schema: every problem at once, or a `Config`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from conf.between_keys.ensembles import not_a_number_of_members
from conf.between_keys.rules import RULES, Rule
from conf.composing.per_model_slurm import convert_by_model, is_mapping
from conf.keys import groups, keys
from conf.schema import REMOVED_KEYS, Config, name_of
from conf.suggestions import nearest_keys
from conf.values import convert
from experiment_utils.errors import Problem, UserError


def check(
    plain: Mapping[str, Any],
    rules: Iterable[Rule] = RULES,
    known_bad: Iterable[str] = (),
    *,
    is_saved: bool = False,
) -> tuple[Config, list[Problem]]:
    """The configuration of nested plain values, and all that is wrong with it.

    Keys that are not given have their defaults, and so have those with a problem: the Config is good
    for use only when there is none. A rule is not asked when a key that it reads has a problem, or is
    among `known_bad` (config paths or groups).

    is_saved: it is of a run that was made, perhaps before a key existed, and a key that it lacks means what
    it did before. Removed keys are ignored.
    """
    values, problems = _convert(plain)
    if is_saved:
        values = _as_before() | values
        problems = [problem for problem in problems if problem.where not in REMOVED_KEYS]
    bad = {problem.where for problem in problems} | set(known_bad)
    config = _build(values)
    for rule in rules:
        if not any(_covers(read, wrong) for read in rule.reads for wrong in bad):
            problems += rule.find(config)
    return config, problems


def to_config(plain: Mapping[str, Any]) -> Config:
    """The typed configuration of nested plain values, as `config.yaml` holds them.

    Types, bounds and choices are checked, rules between keys are not: what was written had passed them.

    Raises:
        UserError: all problems.
    """
    config, problems = check(plain, rules=(), is_saved=True)
    if problems:
        raise UserError(*problems)
    return config


def to_yaml(config: Config) -> str:
    """The file of a configuration, which gives it back when it is read."""
    return plain_to_yaml(to_plain(config))


def plain_to_yaml(plain: dict[str, Any]) -> str:
    """`to_yaml` of nested plain values."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # five times as fast
    text = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True)
    # U+0085 is a line break for YAML 1.1: PyYAML writes it as it is and reads a space.
    return text if "\x85" not in text else yaml.safe_dump(plain, sort_keys=False)


def to_plain(config: Config) -> dict[str, Any]:
    """Nested plain values of every key, in the order of the schema; the reverse of `to_config`."""
    plain = dataclasses.asdict(config)
    plain["restore"] = {name_of(name): value for name, value in plain["restore"].items()}
    return plain


def unknown_key(path: str) -> Problem:
    """The problem of a config path that the schema lacks."""
    if path.startswith("ensemble."):
        return not_a_number_of_members(path)
    if path in REMOVED_KEYS:
        return Problem(path, REMOVED_KEYS[path])
    meant = nearest_keys(path)
    return Problem(path, "no such key" + (f"; nearest: {', '.join(meant)}" if meant else ""))


def _convert(plain: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Config path to converted value, for the keys that are given and right."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for path, value in _leaves(plain):
        key = keys().get(path)
        if path in groups():
            if value is not None:
                problems.append(Problem(path, f"expected the keys of the group {path}, got {value!r}"))
        elif key is None:
            problems.append(unknown_key(path))
        elif value == "???":
            problems.append(Problem(path, f"must be given: {path}=VALUE"))
        elif is_mapping(key):
            values[path], found = convert_by_model(value)
            problems += found
        else:
            try:
                values[path] = convert(key, value)
            except ValueError as error:
                problems.append(Problem(path, str(error)))
    return values, problems


@cache
def _as_before() -> dict[str, Any]:
    """Config path to the value of runs made before the key, for keys whose default is another one."""
    return {
        f"{group}.{name_of(key.name)}": key.metadata["as_before"]
        for group, section in groups().items()
        for key in dataclasses.fields(section)
        if key.default is not dataclasses.MISSING
        and key.metadata.get("as_before", key.default) not in (dataclasses.MISSING, key.default)
    }


def _leaves(plain: Mapping[Any, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in plain.items():
        if name in groups() and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", leaf) for inner, leaf in value.items())
        else:
            yield str(name), value


def _build(values: Mapping[str, Any]) -> Config:
    sections = {
        name: section(
            **{key.name: values[f"{name}.{name_of(key.name)}"] for key in dataclasses.fields(section)
               if f"{name}.{name_of(key.name)}" in values}
        )
        for name, section in groups().items()
    }  # fmt: skip
    return Config(**sections, **{path: value for path, value in values.items() if "." not in path})


def _covers(read: str, wrong: str) -> bool:
    """True when one is the other or the group it is in."""
    return read == wrong or read.startswith(f"{wrong}.") or wrong.startswith(f"{read}.")
