"""Which characters of UTF-8 lie beside a place in a text."""

from __future__ import annotations

DOUBTFUL = (
    *(0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200C)),
    *(0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF),
)
"""Outside ASCII: White_Space of Unicode, and what was or is taken for it by some library."""

_LONGEST = 4


def is_word_behind(data: bytes | bytearray, place: int) -> bool:
    """A character outside ASCII that is surely no whitespace ends at the place.

    One that is ill-formed, or that lies only partly in `data`, is none: such bytes may be dropped, and
    then another one is beside the place.
    """
    return any(_is_word(data[place - size : place]) for size in range(2, min(_LONGEST, place) + 1))


def is_word_ahead(data: bytes | bytearray, place: int) -> bool:
    """As `is_word_behind`, for the character that begins at the place."""
    return any(
        _is_word(data[place : place + size]) for size in range(2, min(_LONGEST, len(data) - place) + 1)
    )


def _is_word(character: bytes | bytearray) -> bool:
    try:
        found = character.decode()
    except UnicodeDecodeError:
        return False
    return len(found) == 1 and ord(found) not in DOUBTFUL
