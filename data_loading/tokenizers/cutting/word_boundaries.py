"""Characters of UTF-8 next to a place in a text."""

from __future__ import annotations

from functools import cache

DOUBTFUL = (
    *(0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200C)),
    *(0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF),
)
"""Characters outside ASCII that are White_Space in Unicode, or whitespace to some library."""

_WHITESPACE = frozenset(map(chr, DOUBTFUL))
_LONGEST = 4


@cache
def letters() -> tuple[int, ...]:
    """Letters of scripts that are written without spaces, and their punctuation.

    Every normalizer but BERT's, which puts spaces around some, turns each alone into text without a blank
    that begins with neither "/" nor a mark.
    """
    ranges = (
        *((0x0E01, 0x0E30), (0x0E40, 0x0E46), (0x0E81, 0x0EB0), (0x0F0B, 0x0F0B), (0x0F0D, 0x0F0D)),
        *((0x0F40, 0x0F42), (0x1000, 0x1021), (0x1780, 0x17A2)),
        *((0x3001, 0x3002), (0x3005, 0x3005), (0x3008, 0x3011), (0x3041, 0x3094), (0x30A1, 0x30FE)),
        *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF01, 0xFF0E), (0xFF10, 0xFF5E)),
    )
    return tuple(point for first, last in ranges for point in range(first, last + 1))


@cache
def _letters() -> frozenset[str]:
    return frozenset(map(chr, letters()))


def is_word_behind(data: bytes | bytearray, place: int, *, letters_only: bool = False) -> bool:
    """Whether a character outside ASCII that is surely no whitespace (or: one of `letters`) ends there.

    False for ill-formed bytes and for a character that is only partly in `data`: such bytes can be dropped,
    and then another character is next to the place.
    """
    sizes = range(2, min(_LONGEST, place) + 1)
    return any(_is_word(data[place - size : place], letters_only) for size in sizes)


def is_word_ahead(data: bytes | bytearray, place: int, *, letters_only: bool = False) -> bool:
    """The same as `is_word_behind` for the character that begins at the place."""
    sizes = range(2, min(_LONGEST, len(data) - place) + 1)
    return any(_is_word(data[place : place + size], letters_only) for size in sizes)


def _is_word(character: bytes | bytearray, letters_only: bool) -> bool:
    try:
        found = character.decode()
    except UnicodeDecodeError:
        return False
    return len(found) == 1 and (found in _letters() if letters_only else found not in _WHITESPACE)
