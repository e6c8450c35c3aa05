"""Dataclasses of plain values that were read from a file, with their types checked."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from experiment_utils.json_values import finite


def shaped(kind: Any, plain: dict[str, Any]) -> Any:
    """Make a dataclass of plain values. Unknown keys, which a later version added, are ignored.

    Raises:
        TypeError: a value is missing, or is not of its field's type.
    """
    hints = _hints(kind)
    given = {name: value for name, value in plain.items() if name in hints}
    for name, value in given.items():
        if not _fits(value, hints[name]):
            raise TypeError(f"{name}: expected {hints[name]}, got {value!r:.40}")
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if name in kind.__dataclass_fields__}


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, parts[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(one, parts[1]) for one in value.values())
    if hint is float:
        return finite(value) is not None
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
