"""Whether a text would be refused for a run that has no place to cut at, without reading all of it.

A run longer than the limit holds at least one of the places that lie the limit apart. Beside each of them the
next cuts are looked for, which mostly takes a few kilobytes. In a text of more than `_MOST_PLACES` of them,
places spread over all of it are looked at: a single long run between two of them is found by the work itself.
"""

from __future__ import annotations

import os

from data_loading.pretokenizer.blocks import run_too_long
from data_loading.pretokenizer.cuts import CutRule, first_cut, last_cut
from data_loading.pretokenizer.division import is_one_document
from data_loading.pretokenizer.source import Source
from data_loading.pretokenizer.texts import TextFile
from experiment_utils.errors import UserError

_MOST_PLACES = 256
_FIRST_BYTES, _MOST_BYTES = 1 << 16, 1 << 22
"""Read at a time: at first, and where nothing was found in so much."""
_BESIDE = 8
"""Bytes that two reads share, so that each cut is seen with the characters beside it."""


def long_run(part: Source, rule: CutRule, limit_bytes: int) -> UserError | None:
    """What the work would be refused with; None where nothing speaks against it.

    Looks into plain files of text that are one document, and no other source.
    """
    if not isinstance(part, TextFile) or part.plain_file is None or not is_one_document(part):
        return None
    size = part.plain_file.total_bytes
    if not rule.exists:
        return run_too_long(part.what, 0, rule, limit_bytes) if size > limit_bytes else None
    places = range(limit_bytes, size, limit_bytes * -(-size // (limit_bytes * _MOST_PLACES)))
    try:
        with open(part.plain_file.path, "rb", buffering=0) as opened:
            text, done = _Text(opened.fileno(), size, rule), 0
            for place in places:
                start = text.last_start(done, place)
                if size - start > limit_bytes and text.first_cut(start, place, start + limit_bytes) is None:
                    return run_too_long(part.what, start, rule, limit_bytes)
                done = start
    except OSError as error:
        return UserError(f"{part.plain_file.path} cannot be read: {error.strerror}", code="file-unreadable")
    return None


class _Text:
    """A file and the rule for its cuts."""

    def __init__(self, descriptor: int, size: int, rule: CutRule) -> None:
        self._descriptor, self._size, self._rule = descriptor, size, rule

    def last_start(self, least: int, place: int) -> int:
        """Where the text behind the last cut at or before the place begins; `least` where that is later."""
        high, width = place, _FIRST_BYTES
        while high > least:
            low = max(least, high - width)
            data, first = self._read(low, high)
            found = last_cut(data, self._rule, low - first, high - first)
            if found is not None:
                return first + found + self._rule.drop_space
            high, width = low, min(width * 4, _MOST_BYTES)
        return least

    def first_cut(self, start: int, place: int, most: int) -> int | None:
        """The first cut behind the place and `start`, at `most` at the farthest."""
        low, width = max(start, place), _FIRST_BYTES
        while low < most:
            high = min(most, low + width)
            data, first = self._read(low, high)
            found = first_cut(data, self._rule, low - first)
            if found is not None:
                return first + found if first + found <= most else None
            low, width = high, min(width * 4, _MOST_BYTES)
        return None

    def _read(self, low: int, high: int) -> tuple[bytes, int]:
        """What lies between, with a little on either side; and where that begins."""
        first = max(0, low - _BESIDE)
        return os.pread(self._descriptor, min(self._size, high + _BESIDE) - first, first), first
