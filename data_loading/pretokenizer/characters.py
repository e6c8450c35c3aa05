"""Which characters of UTF-8 lie beside a place in a text, for many places at once."""

from __future__ import annotations

from typing import Any

DOUBTFUL = (
    *(0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200C)),
    *(0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF),
)
"""Outside ASCII: White_Space of Unicode, and what was or is taken for it by some library."""


def is_word_behind(data: Any, places: Any) -> Any:
    """bool `(n,)`: a character outside ASCII that is surely no whitespace ends at the place.

    data: uint8, any bytes. places: integers `(n,)`. A character that is ill-formed, or that lies only
    partly in `data`, is none: such bytes may be dropped, and then another one is beside the place.
    """
    import numpy as np

    found = np.zeros(len(places), bool)
    for size in (2, 3, 4):
        points, sizes = _characters(data, places - size)
        found |= (sizes == size) & ~np.isin(points, DOUBTFUL)
    return found


def is_word_ahead(data: Any, places: Any) -> Any:
    """As `is_word_behind`, for the character that begins at the place."""
    import numpy as np

    points, sizes = _characters(data, places)
    return (sizes > 0) & ~np.isin(points, DOUBTFUL)


def _characters(data: Any, places: Any) -> tuple[Any, Any]:
    """(code points, sizes in bytes) of the characters outside ASCII that begin there; size 0: none does."""
    import numpy as np

    def byte(number: int) -> Any:
        at = places + number
        inside = (at >= 0) & (at < len(data))
        return np.where(inside, data[np.where(inside, at, 0)], 0).astype(np.uint32)

    lead, *tail = (byte(number) for number in range(4))
    points, sizes = np.zeros(len(places), np.uint32), np.zeros(len(places), np.uint8)
    limits = (
        (2, 0xE0, 0xC0, 0x80, 0x7FF),
        (3, 0xF0, 0xE0, 0x800, 0xFFFF),
        (4, 0xF8, 0xF0, 0x10000, 0x10FFFF),
    )
    for size, mask, mark, lowest, highest in limits:
        fits, point = (lead & mask) == mark, lead & (0xFF ^ mask)
        for follower in tail[: size - 1]:
            fits = fits & ((follower & 0xC0) == 0x80)
            point = (point << 6) | (follower & 0x3F)
        fits &= (point >= lowest) & (point <= highest) & ((point < 0xD800) | (point > 0xDFFF))
        points, sizes = np.where(fits, point, points), np.where(fits, size, sizes)
    return points, sizes
