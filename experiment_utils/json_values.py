"""Values out of JSON and CSV files that can hold anything: of the type asked for, else None or empty.

A bool is no number. Whether nan and infinity are, each function says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

_LARGEST = 2**62
_MOST_SECONDS = 1e12


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether the value is an int or a float, nan and infinity included."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def finite(value: object) -> float | None:
    """A finite number as a float."""
    if not is_number(value):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def integer(value: object) -> int | None:
    """An int that fits into 63 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if abs(value) < _LARGEST else None


def unsigned(value: object) -> int | None:
    """A count or a number of bytes: 0 or more; a fraction is cut off."""
    if not is_number(value) or not 0 <= value < _LARGEST:
        return None
    return int(value)


def seconds(value: object) -> float | None:
    """A time or a duration."""
    found = finite(value)
    return found if found is not None and abs(found) < _MOST_SECONDS else None


def increase(before: object, after: object) -> int | None:
    """Increase of a counter between two readings; a counter that was reset counts from 0."""
    first, last = unsigned(before), unsigned(after)
    if first is None or last is None:
        return None
    return last - first if last >= first else last


def text(value: object) -> str:
    """The string, else an empty one."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> list[str]:
    """The strings of a list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def mapping(value: object) -> dict[str, Any]:
    """The JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[dict[str, Any]]:
    """The JSON objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def at_path(value: object, path: str) -> Any:
    """The value at a dotted path such as `optimizer.lr`, None if an object or a key is missing."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def leaves(value: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path to value, for every value of nested objects."""
    found: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, dict):
            found.update([(f"{name}.{path}", one) for path, one in leaves(inner).items()])
        else:
            found[name] = inner
    return found


def csv_number(field: str | None) -> float | None:
    """The number of a CSV field, nan and infinity included; None if it is blank or no number."""
    try:
        return float(field) if field and field.strip() else None
    except ValueError:
        return None


def parse_json(content: bytes) -> Any:
    """The value of a JSON text. NaN and Infinity are read, as Python writes them.

    Raises:
        ValueError: it is no JSON, nested too deeply, or not UTF-8.
    """
    try:
        import orjson  # a third of the time

        return orjson.loads(content)
    except (ImportError, ValueError):  # NaN for one
        pass
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
