"""The schema as a flat table: one `Key` for each thing that can be set, found by its config path."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any

from conf.schema import Config, name_of

_OF_IDENTITY = ("as_before", "only_with")
"""Facts of a key that decide about the identity of a run alone."""


@dataclass(frozen=True)
class Key:
    """One setting.

    path: `optimizer.lr`, or `seed` at the top. types: what its value may be, None apart (`optional`);
    (list,) is a list of text. The rest is as `conf.schema.key` took it.
    """

    path: str
    types: tuple[type, ...]
    optional: bool
    default: Any
    doc: str
    kind: str | None
    choices: tuple[str, ...] | None
    above: float | None
    at_least: float | None
    at_most: float | None
    below: float | None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def is_text(self) -> bool:
        """True when any text is a value of it."""
        return self.types == (str,) and self.choices is None


@cache
def groups() -> dict[str, type]:
    """Group name to its dataclass, in the order of the schema."""
    hints: dict[str, type] = typing.get_type_hints(Config)
    return {name: kind for name, kind in hints.items() if is_dataclass(kind)}


@cache
def keys() -> dict[str, Key]:
    """Config path to Key, in the order of the schema."""
    return {found.path: found for found in _walk(Config, "")}


def keys_of(group: str) -> list[Key]:
    """The keys of one group; of `""`, those at the top."""
    return [found for path, found in keys().items() if path.rpartition(".")[0] == group]


def _walk(schema: Any, prefix: str) -> Iterator[Key]:
    hints = typing.get_type_hints(schema)
    for field in fields(schema):
        hint = hints[field.name]
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
