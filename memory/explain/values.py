"""Values out of files that may hold anything: of the type asked for, or None."""

from __future__ import annotations

import math
from typing import Any

_LARGEST = 2**62


def number(value: Any) -> int | None:
    """A count or an amount, not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and 0 <= value < _LARGEST else None


def seconds(value: Any) -> float | None:
    """A time or a duration."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 1e12 else None


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Those in a list that are objects."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def risen(before: Any, after: Any) -> int | None:
    """By how much a counter rose; None where one of the two is not known. One made anew counts from 0."""
    first, last = number(before), number(after)
    if first is None or last is None:
        return None
    return last - first if last >= first else last
