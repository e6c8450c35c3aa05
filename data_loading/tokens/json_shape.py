"""Check a JSON value against a shape: which keys it needs, of which kinds."""

from __future__ import annotations

from typing import Any

ANY_KEY = "*"
"""Key of a shape for every key of an object."""


def shape_problem(value: Any, shape: Any, where: str = "") -> str | None:
    """Return the first difference between a value and a shape, None if there is none.

    Args:
        value: A value read from JSON.
        shape: A dict of the keys that an object needs, a list with the shape of every item, or a type.
        where: Dotted path of the value, ending with a dot.
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where.rstrip('.') or 'it'} is no object"
        if ANY_KEY in shape:
            shape = dict.fromkeys(value, shape[ANY_KEY])
        for key, inner in shape.items():
            if key not in value:
                return f"{where}{key} is missing"
            if (problem := shape_problem(value[key], inner, f"{where}{key}.")) is not None:
                return problem
        return None
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where.rstrip('.')} is no list"
        problems = (shape_problem(item, shape[0], f"{where}{i}.") for i, item in enumerate(value))
        return next(filter(None, problems), None)
    return None if isinstance(value, shape) else f"{where.rstrip('.')} is {value!r}"
