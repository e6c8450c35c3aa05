"""Windows over ranges of tokens that lie in one array or in several: a batch is gathered, not looped.

Window w of a range holds the tokens [w * seq_len, (w + 1) * seq_len] of it: seq_len inputs and, one on,
as many labels. The windows of several ranges are numbered through. No window crosses the end of a
range; one that crosses the border of two shards is put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data_loading.shards import Shards, Values


def windows_in(tokens: int, seq_len: int) -> int:
    """Windows of `seq_len` inputs and as many labels, one on: n tokens hold (n - 1) // seq_len."""
    return max(0, (tokens - 1) // seq_len)


@dataclass(frozen=True)
class _Segment:
    """Windows in a row, from number `window` on. view: `(n,)` of void, a window each, not a copy; None:
    the one window that begins at `token` crosses a border.
    """

    window: int
    token: int
    view: np.ndarray | None


class Windows:
    """All windows of `ranges` of `tokens`, in order; `gather` reads any of them."""

    def __init__(self, tokens: Values, ranges: Sequence[range], seq_len: int) -> None:
        self._tokens, self._width = tokens, seq_len + 1
        self._segments: list[_Segment] = []
        self._count = 0
        for tokens_of in ranges:
            self._add(tokens_of, seq_len)
        self._first = np.array([segment.window for segment in self._segments])

    def __len__(self) -> int:
        return self._count

    def _add(self, tokens_of: range, seq_len: int) -> None:
        left = windows_in(len(tokens_of), seq_len)
        start = tokens_of.start
        while left:
            array, first = _part_at(self._tokens, start)
            whole = min(left, max(0, (first + len(array) - start - 1) // seq_len))
            view = _strided(array, start - first, whole, seq_len) if whole else None
            self._segments.append(_Segment(self._count, start, view))
            whole = max(whole, 1)
            self._count, start, left = self._count + whole, start + whole * seq_len, left - whole

    def gather(self, windows: np.ndarray) -> np.ndarray:
        """`(len(windows), seq_len + 1)` of the tokens' own dtype, in the order of `windows` (int64)."""
        if len(self._segments) == 1 and (view := self._segments[0].view) is not None:
            found = view[windows]
        else:
            found = np.empty(len(windows), self._void)
            places = np.searchsorted(self._first, windows, side="right") - 1
            for place in np.unique(places):
                here = places == place
                found[here] = self._of_segment(self._segments[place], windows[here])
        return found.view(self._tokens.dtype).reshape(len(windows), self._width)

    @property
    def _void(self) -> np.dtype:
        """A window is one opaque element, so that NumPy gathers it with one memcpy."""
        return np.dtype((np.void, self._width * self._tokens.dtype.itemsize))

    def _of_segment(self, segment: _Segment, windows: np.ndarray) -> np.ndarray:
        if segment.view is not None:
            return segment.view[windows - segment.window]
        tokens = self._tokens[segment.token : segment.token + self._width]
        return np.repeat(np.ascontiguousarray(tokens).view(self._void), len(windows))


def _part_at(tokens: Values, index: int) -> tuple[np.ndarray, int]:
    """The array that holds the token, and the index of its first token."""
    if not isinstance(tokens, Shards):
        return np.asarray(tokens), 0
    part = int(np.searchsorted(tokens.first, index, side="right")) - 1
    return tokens.parts[part], int(tokens.first[part])


def _strided(array: np.ndarray, start: int, count: int, seq_len: int) -> np.ndarray:
    width = array.dtype.itemsize
    return np.ndarray(
        shape=(count,),
        dtype=np.dtype((np.void, (seq_len + 1) * width)),
        buffer=np.asarray(array),
        offset=start * width,
        strides=(seq_len * width,),
    )
