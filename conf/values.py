"""One value against its key: text, yaml or Python in, the value the program uses out."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable
from typing import Any

from conf.schema import AUTO
from conf.schema_key import Key
from conf.suggestions import nearest, or_list
from experiment_utils.quantities import EXPECTED as A_TIME
from experiment_utils.quantities import exact_size, parse_count, parse_duration, parse_size

_WHOLE = re.compile(r"[+-]?\d+(_\d+)*")
_NAME = re.compile(r"\w[\w.+=@-]*")
_LONGEST_NAME = 100


def convert(key: Key, value: Any) -> Any:
    """The value as the key's type.

    Raises:
        ValueError: it is none; the message says what was expected.
    """
    if value is None:
        if key.optional:
            return None
        raise ValueError(f"expected {describe(key)}, got null")
    converted = _of_type(key, value)
    for word, bound, holds in _bounds(key):
        if not isinstance(converted, bool | str | list) and not holds(converted, bound):
            unit = "" if key.kind != "size" or _has_unit(value) else ": a number alone is bytes"
            raise ValueError(f"must be {word} {_bound(key, bound)}, got {_shown(value)}{unit}")
    return converted


def describe(key: Key) -> str:
    """What its values are, in words: `a number above 0, or null`."""
    if key.choices:
        words = or_list(key.choices)
    elif key.types == (list,):
        words = f"a list such as {key.name}=[a,b]"
    elif key.types == (dict,):
        words = f"a mapping such as {key.name}={{256d: {{mem: 64GB}}}}"
    elif key.types == (bool,):
        words = "true or false"
    elif key.kind == "time":
        words = f"auto, or {A_TIME}" if key.default == AUTO else A_TIME
    elif key.kind == "count":
        words = "a count such as 500M, 2e9 or 1000,"
    elif key.kind == "size":
        words = "a size such as 32GB"
    elif key.kind == "path":
        words = "a path"
    elif key.kind == "name":
        words = "a name"
    elif int in key.types:
        words = "a whole number"
    elif float in key.types:
        words = "a number"
    else:
        words = "text"
    words += (
        f" {' and '.join(bounds)}"
        if (bounds := [f"{word} {_bound(key, bound)}" for word, bound, _ in _bounds(key)])
        else ""
    )
    others = [AUTO] if str in key.types and int in key.types else []
    others += ["true", "false"] if _is_switch_or_more(key) else []
    others += ["null"] if key.optional else []
    return f"{words}, or {' or '.join(others)}" if others else words


def _is_switch_or_more(key: Key) -> bool:
    return bool in key.types and len(key.types) > 1


def _bounds(key: Key) -> list[tuple[str, float, Callable[[Any, Any], bool]]]:
    """(in words, the bound, what holds between a value and it) of each bound that the key has."""
    every = (
        ("above", key.above, operator.gt),
        ("at least", key.at_least, operator.ge),
        ("at most", key.at_most, operator.le),
        ("below", key.below, operator.lt),
    )
    return [(word, bound, holds) for word, bound, holds in every if bound is not None]


def _bound(key: Key, bound: float) -> str:
    return exact_size(int(bound)) if key.kind == "size" else str(bound)


def _has_unit(value: Any) -> bool:
    return str(value).strip()[-1:].isalpha()


def _of_type(key: Key, value: Any) -> Any:
    if key.types == (list,):
        return _list(key, value)
    if key.types == (dict,) and isinstance(value, dict):
        return value  # what is in it: conf.per_model_slurm
    if isinstance(value, list | dict):
        raise ValueError(f"expected {describe(key)}, got {_shown(value)}")
    if key.types == (bool,):
        return _bool(key, value)
    if _is_switch_or_more(key) and str(value).lower() in ("true", "false"):
        return _bool(key, value)
    if int in key.types:
        if str in key.types and value == AUTO:
            return AUTO
        return _int(key, value)
    if float in key.types:
        return _float(key, value)
    return _text(key, value)


def _bool(key: Key, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"expected {describe(key)}, got {_shown(value)}")


def _int(key: Key, value: Any) -> int:
    if key.kind in ("count", "size"):
        try:
            return parse_count(value) if key.kind == "count" else parse_size(value)
        except ValueError as error:
            if _is_negative(value):
                raise ValueError(f"must be at least {key.at_least or 0}, got {_shown(value)}") from error
            raise ValueError(f"expected {describe(key)}, got {_shown(value)}") from error
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise ValueError(f"expected {describe(key)}, got {_shown(value)}")


def _is_negative(value: Any) -> bool:
    try:
        return float(value) < 0
    except (TypeError, ValueError):
        return False


def _float(key: Key, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"expected {describe(key)}, got {_shown(value)}") from error
    if not math.isfinite(number):
        raise ValueError(f"must be finite, got {_shown(value)}")
    return number


def _list(key: Key, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or any(isinstance(item, list | dict) for item in value):
        raise ValueError(f"expected {describe(key)}, got {_shown(value)}")
    return [str(item) for item in value]


def _text(key: Key, value: Any) -> str:
    if key.kind == "time" and value != AUTO:
        if isinstance(value, float | bool):
            raise ValueError(f"expected {describe(key)}, got {_shown(value)}")
        try:
            parse_duration(value)
        except ValueError as error:
            raise ValueError(f"expected {describe(key)}, got {_shown(value)}") from error
        return str(value).strip()
    if not isinstance(value, str):
        raise ValueError(
            f"expected {describe(key)}, got {_shown(value)}, which yaml reads as "
            f"{'true or false' if isinstance(value, bool) else 'a number'}: put it in quotes"
        )
    if key.choices and value not in key.choices:
        close = nearest(value, key.choices, count=1)
        hint = f"; nearest: {close[0]}" if close and len(key.choices) > 3 else ""
        raise ValueError(f"expected {describe(key)}, got {_shown(value)}{hint}")
    if key.kind == "path":
        if not value:
            raise ValueError(f"expected {describe(key)}, got nothing")
        return os.path.expanduser(value)  # noqa: PTH111  Path() would also drop a trailing slash
    if key.kind == "name" and (not _NAME.fullmatch(value) or len(value) > _LONGEST_NAME):
        raise ValueError(
            f"names a folder or file: expected letters, digits, and . _ + = @ - after the first, "
            f"{_LONGEST_NAME} at most, got {_shown(value)}"
        )
    return value


def _shown(value: Any) -> str:
    if isinstance(value, str):
        text = f"`{value}`"
        return text if len(text) <= 80 else f"{text[:77]}...`"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
