"""Text out of a part of a line of JSON that is longer than a sample."""

from __future__ import annotations

import json
import re

_LEAST_BYTES = 1 << 16
"""Shorter lines are whole somewhere in a sample."""
_STRING = re.compile(r'(?:[^"\\]|\\.)+')
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\[^u]")


def longest_string(part: bytes) -> bytes:
    """What stands in the longest string of a part of a line, as UTF-8; nothing of a short part.

    The string may begin before the part and end behind it.
    """
    if len(part) < _LEAST_BYTES:
        return b""
    found = max(_STRING.findall(part.decode("utf-8", "ignore")), key=len, default="")
    return _ESCAPES.sub(_unescaped, found).encode("utf-8", "ignore")


def _unescaped(escapes: re.Match[str]) -> str:
    try:
        return str(json.loads(f'"{escapes[0]}"'))
    except ValueError:  # of no meaning in JSON
        return escapes[0]
