"""Parts that a configuration uses, and their options in it: its section `own`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conf import parts_table
from conf.parts_table import ARCH_OPTIONS, CHOSEN_AT, LISTED_AT, Part
from conf.suggestions import nearest, no_such
from conf.values import convert
from experiment_utils.errors import Problem

_EXTENSIBLE = frozenset([*CHOSEN_AT.values(), *(f"arch.{name}" for name in ARCH_OPTIONS)])


def is_extensible(path: str) -> bool:
    """Whether a part of the user's can be the value of this config path."""
    return path in _EXTENSIBLE


def parts_in_use(config: Any) -> list[Part]:
    """Parts of the user's that a configuration names, as far as this process knows them.

    Args:
        config: a Config, or an object with its groups.
    """
    if not parts_table.parts():
        return []
    return [found for name in _names_in_use(config) if (found := parts_table.part(name)) is not None]


def listed(config: Any) -> set[str]:
    """Names of the metrics and callbacks of a configuration."""
    return {name for path in LISTED_AT.values() for name in _value_at(config, path) or ()}


def options_of_identity(config: Any) -> dict[str, Any]:
    """Section `own` without the options of metrics and callbacks, which change no loss."""
    left_out = listed(config)
    return {name: options for name, options in config.own.items() if name not in left_out}


def read_own(config: Any, given: Any) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """All options of the parts in use, at the values given or at their defaults, and what is wrong.

    Args:
        given: the section `own` of a composed configuration.
    """
    used = {part.name: part for part in parts_in_use(config)}
    problems = list(_unknown_in_lists(config))
    if given is not None and not isinstance(given, Mapping):
        return {}, [
            *problems,
            Problem("own", f"expected own.NAME.OPTION=VALUE, got {given!r}", "own-section"),
        ]
    values = {part.name: {key.name: key.default for key in part.options} for part in used.values()}
    for name, section in (given or {}).items():
        problems += _read_section(str(name), section, used, values)
    return {name: options for name, options in values.items() if options}, problems


def _read_section(
    name: str, section: Any, used: Mapping[str, Part], values: dict[str, dict[str, Any]]
) -> list[Problem]:
    part = parts_table.part(name)
    if part is None:
        names = [one.name for one in parts_table.parts() if one.options]
        what = (
            no_such("part", name, names) if names else "no plugin registers it: name its file, plugins=[FILE]"
        )
        return [Problem(f"own.{name}", what, "unknown-part")]
    if not isinstance(section, Mapping):
        return [Problem(f"own.{name}", f"expected own.{name}.OPTION=VALUE, got {section!r}", "own-section")]
    keys, problems = {key.name: key for key in part.options}, []
    for option, value in section.items():
        where = f"own.{name}.{option}"
        if option not in keys:
            problems.append(Problem(where, _no_such_option(str(option), [*keys]), "unknown-option"))
        elif name not in used:
            what = f"has no effect: the {part.kind} {name} is not in use; choose it: {part.typed_as}"
            problems.append(Problem(where, what, "part-not-used"))
        else:
            try:
                values[name][option] = convert(keys[option], value)
            except ValueError as error:
                problems.append(Problem(where, str(error)))
    return problems


def _no_such_option(option: str, names: list[str]) -> str:
    close = nearest(option, names)
    return f"no such option; {'nearest: ' if close else 'choices: '}{', '.join(close or names or ['none'])}"


def _unknown_in_lists(config: Any) -> list[Problem]:
    problems = []
    for kind, path in LISTED_AT.items():
        there = parts_table.names_at(path)
        for name in _value_at(config, path) or ():
            if name not in there:
                what = no_such(kind, name, there) if there else f"{name}: no plugin registers such a {kind}"
                problems.append(Problem(path, what, "unknown-part"))
    return problems


def _names_in_use(config: Any) -> list[str]:
    paths = [*CHOSEN_AT.values(), *(f"arch.{name}" for name in ARCH_OPTIONS)]
    single = [
        value
        for path in paths
        if isinstance(value := _value_at(config, path), str) and value in parts_table.names_at(path)
    ]
    return list(
        dict.fromkeys(
            [*single, *(name for path in LISTED_AT.values() for name in _value_at(config, path) or ())]
        )
    )


def _value_at(config: Any, path: str) -> Any:
    group, _, name = path.partition(".")
    return getattr(getattr(config, group, None), name, None)
