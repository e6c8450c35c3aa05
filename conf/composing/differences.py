"""Where configurations differ: what an edit changed, what varies in a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from conf.composing.check import to_plain
from conf.composing.overrides import typed_at
from conf.schema import Config
from conf.sizes import size_name
from experiment_utils.json_values import leaves


def changes(
    before: Mapping[str, Any], now: Mapping[str, Any], counts: Callable[[str], bool]
) -> dict[str, tuple[Any, Any]]:
    """Config path to (old, new) of the keys that count and differ; a value that is not there is None."""
    old, new = leaves(before), leaves(now)
    return {
        path: (old.get(path), new.get(path))
        for path in {**old, **new}
        if counts(path) and old.get(path) != new.get(path)
    }


def varying(configs: Sequence[Config], counts: Callable[[str], bool]) -> dict[str, list[str]]:
    """Title to the value in each configuration, as typed, of the keys that count and are not all equal.

    What follows from a group's option, which has a column of its own, is left out, and so is what
    follows from the name of a model's size.
    """
    every = [[getattr(config, field.name) for config in configs] for field in fields(Config)]
    differing = [
        field.name
        for field, parts in zip(fields(Config), every, strict=True)
        if any(part is not parts[0] and part != parts[0] for part in parts)
    ]
    flat = [leaves(to_plain(config, differing)) for config in configs]
    columns: dict[str, list[str]] = {}
    for path in flat[0] if flat else ():
        values = [typed_at(path, one.get(path)) for one in flat]
        if len(set(values)) == 1 or not counts(path):
            continue
        group, _, name = path.rpartition(".")
        options = [
            size_name(config.model) if group == "model" else str(one.get(f"{group}.name"))
            for config, one in zip(configs, flat, strict=True)
        ]
        follows = len({*zip(options, values, strict=True)}) == len({*options})
        if name == "name" and group != "model":
            columns[group] = values
        elif not follows:
            columns[path if name in columns else name] = values
    return columns
