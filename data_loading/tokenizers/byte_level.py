"""GPT-2's byte level: a printable letter for each byte."""

from __future__ import annotations

from functools import cache

UTF8_BYTES = tuple(byte for byte in range(0xF5) if byte not in (0xC0, 0xC1))
"""Bytes that occur in UTF-8."""


@cache
def byte_letters() -> tuple[str, ...]:
    """The letter of each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(0x100))
