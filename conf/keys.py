"""The schema as a flat table: one `Key` for each thing that can be set, found by its config path."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import cache, lru_cache
from typing import Any

from conf import parts_table
from conf.schema import Config, name_of
from conf.schema_key import Key

_OF_IDENTITY = ("as_before", "only_with")
"""Facts of a key that decide about the identity of a run alone."""


@cache
def groups() -> dict[str, type]:
    """Group name to its dataclass, in the order of the schema."""
    hints: dict[str, type] = typing.get_type_hints(Config)
    return {name: kind for name, kind in hints.items() if is_dataclass(kind)}


def keys() -> dict[str, Key]:
    """Config path to Key, in the order of the schema; then the options of the user's own parts."""
    return _keys(parts_table.version())


@lru_cache(maxsize=1)
def _keys(version: int) -> dict[str, Key]:
    found = {one.path: one for one in _walk(Config, "")}
    for part in parts_table.parts():
        key = found.get(part.chosen_at)
        if key is not None and key.choices is not None:
            found[key.path] = replace(key, choices=(*key.choices, part.name))
    return found | {option.path: option for part in parts_table.parts() for option in part.options}


def keys_of(group: str) -> list[Key]:
    """The keys of one group; of `""`, those at the top."""
    return [found for path, found in keys().items() if path.rpartition(".")[0] == group]


def _walk(schema: Any, prefix: str) -> Iterator[Key]:
    hints = typing.get_type_hints(schema)
    for field in fields(schema):
        hint = hints[field.name]
        if field.name == "own":
            continue  # its keys are those of the parts
        if is_dataclass(hint):
            yield from _walk(hint, f"{prefix}{field.name}.")
        else:
            yield _key(f"{prefix}{name_of(field.name)}", hint, field)


def _key(path: str, hint: Any, field: Field[Any]) -> Key:
    union = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    settings = {name: value for name, value in field.metadata.items() if name not in _OF_IDENTITY}
    return Key(
        path=path,
        types=tuple(typing.get_origin(kind) or kind for kind in union if kind is not types.NoneType),
        optional=types.NoneType in union,
        default=default,
        **settings,
    )
