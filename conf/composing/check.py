"""Check a composed configuration against the schema: every problem at once, or a `Config`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from conf import parts_table
from conf.between_keys.ensembles import not_a_number_of_members
from conf.between_keys.rules import RULES, Rule
from conf.keys import groups, keys
from conf.own_parts.in_use import is_extensible, parts_in_use, read_own
from conf.per_model_slurm import convert_by_model, is_mapping
from conf.schema import REMOVED_KEYS, Config, field_of, name_of
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
    among `known_bad` (config paths or groups). Configurations share the dataclass of a group that is equal.

    is_saved: it is of a run that was made, perhaps before a key existed, and a key that it lacks means what
    it did before. Removed keys are ignored.
    """
    sections, problems = _read(plain, is_saved)
    if is_saved:
        problems = [problem for problem in problems if problem.where not in REMOVED_KEYS]
    config = Config(**sections)
    if not is_saved:
        config.own, wrong = read_own(config, plain.get("own"))
        problems += wrong
        config.plugins = list(dict.fromkeys(part.plugin for part in parts_in_use(config)))
    bad = {problem.where for problem in problems} | set(known_bad)
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
    """The file of a configuration.

    Raises:
        AssertionError: A value would not be the same when the file is read.
    """
    parts = ((field.name, getattr(config, field.name)) for field in dataclasses.fields(config))
    return "".join(_yaml_of(name, _Same(repr(value), value)) for name, value in parts)


def plain_to_yaml(plain: dict[str, Any]) -> str:
    """The file of nested plain values."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # five times as fast
    text = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True)
    # U+0085 is a line break for YAML 1.1: PyYAML writes it as it is and reads a space.
    return text if "\x85" not in text else yaml.safe_dump(plain, sort_keys=False)


def to_plain(config: Config, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Nested plain values of every key, in the order of the schema; the reverse of `to_config`.

    Args:
        names: Groups and top keys to include; None: all.
    """
    names = [field.name for field in dataclasses.fields(config)] if names is None else names
    return {name: _plain(getattr(config, name)) for name in names}


def _plain(part: Any) -> Any:
    if not dataclasses.is_dataclass(part):
        return copy.copy(part)
    return {name_of(name): value for name, value in dataclasses.asdict(part).items()}  # type: ignore[arg-type]


def unknown_key(path: str) -> Problem:
    """The problem of a config path that the schema lacks."""
    if path.startswith("ensemble."):
        return not_a_number_of_members(path)
    if path in REMOVED_KEYS:
        return Problem(path, REMOVED_KEYS[path])
    meant = nearest_keys(path)
    return Problem(path, "no such key" + (f"; nearest: {', '.join(meant)}" if meant else ""))


@dataclass(frozen=True)
class _Same:
    """A value of plain types that cannot be hashed; equal to others with the same text."""

    text: str
    value: Any = field(compare=False)


def _read(plain: Mapping[Any, Any], is_saved: bool) -> tuple[dict[str, Any], list[Problem]]:
    """The fields of `Config`, as far as they are given and right, and what is wrong with the others."""
    fields: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in {**plain, **{group: plain.get(group) for group in groups()}}.items():
        if name in groups():
            if value is not None and not isinstance(value, Mapping):
                problems.append(Problem(name, f"expected the keys of the group {name}, got {value!r}"))
            given = value if isinstance(value, Mapping) else {}
            fields[name], found = _read_group(
                name, _Same(repr(given), given), is_saved, parts_table.version()
            )
        elif name == "own":
            fields["own"], found = (copy.deepcopy(value) if is_saved else {}), []
        elif str(name) in keys() and "." in str(name):
            group, _, key = str(name).partition(".")
            found = [Problem(str(name), f"expected the group with its keys below: {group}: {{{key}: VALUE}}")]
        else:
            converted, found = _convert(str(name), value, is_saved)
            fields |= converted
        problems += found
    return fields, problems


@lru_cache(maxsize=4096)
def _read_group(name: str, given: _Same, is_saved: bool, parts: int) -> tuple[Any, list[Problem]]:
    """The dataclass of a group, and what is wrong with its values. The runs of a sweep share most groups.

    parts: version of the table of the user's own parts, which are choices of keys.
    """
    values = dict(_as_before().get(name, {})) if is_saved else {}
    problems: list[Problem] = []
    for key, value in given.value.items():
        converted, found = _convert(f"{name}.{key}", value, is_saved)
        values |= converted
        problems += found
    return groups()[name](**values), problems


def _convert(path: str, value: Any, is_saved: bool) -> tuple[dict[str, Any], list[Problem]]:
    """Field name to the converted value of one key; empty, and the problem, if it is wrong.

    A saved run can name a part of the user's whose plugin was not read.
    """
    key = keys().get(path)
    field_name = field_of(path.rpartition(".")[2])
    if key is None:
        return {}, [unknown_key(path)]
    if value == "???":
        return {}, [Problem(path, f"must be given: {path}=VALUE")]
    if is_saved and is_extensible(path) and isinstance(value, str):
        return {field_name: value}, []
    if is_mapping(key):
        converted, problems = convert_by_model(value)
        return {field_name: converted}, problems
    try:
        return {field_name: convert(key, value)}, []
    except ValueError as error:
        return {}, [Problem(path, str(error))]


@cache
def _as_before() -> dict[str, dict[str, Any]]:
    """Group to field to the value of runs made before the key, for keys whose default is another one."""
    return {
        group: {
            key.name: key.metadata["as_before"]
            for key in dataclasses.fields(section)
            if key.default is not dataclasses.MISSING
            and key.metadata.get("as_before", key.default) not in (dataclasses.MISSING, key.default)
        }
        for group, section in groups().items()
    }


@lru_cache(maxsize=4096)
def _yaml_of(name: str, part: _Same) -> str:
    """The lines of one field of a configuration, checked by reading them."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = plain_to_yaml({name: _plain(part.value)})
    read, problems = _read(yaml.load(text, Loader=loader), is_saved=True)
    if problems or read[name] != part.value:
        raise AssertionError(f"{name}: {part.text} does not read back as it was written: {text}")
    return text


def _covers(read: str, wrong: str) -> bool:
    """True when one is the other or the group it is in."""
    return read == wrong or read.startswith(f"{wrong}.") or wrong.startswith(f"{read}.")
