"""Windows over ranges of tokens: their number, and the first token of each.

A window is `seq_len` inputs and as many labels, `shift` tokens on; the next window of its range begins
`stride` tokens later. No window crosses the end of a range. Windows of several ranges have one numbering.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


def windows_in(tokens: int, seq_len: int, stride: int | None = None, shift: int = 1) -> int:
    """Return the windows of a range of `tokens`. stride: None: seq_len, so that each token is read once."""
    return max(0, (tokens - seq_len - shift) // (stride or seq_len) + 1)


class Cut(Protocol):
    """Pieces that tokens are cut into."""

    @property
    def seq_len(self) -> int:
        """Inputs of each piece."""

    @property
    def shift(self) -> int:
        """Tokens from an input to its label."""

    @property
    def name(self) -> str:
        """Difference from other cuts of the same tokens, for fingerprints."""

    def __len__(self) -> int: ...


class Windows:
    """All windows of `ranges`, in order."""

    def __init__(
        self, ranges: Sequence[range], seq_len: int, stride: int | None = None, shift: int = 1
    ) -> None:
        self.seq_len, self.stride, self.shift = seq_len, stride or seq_len, shift
        counts = [windows_in(len(tokens), seq_len, stride, shift) for tokens in ranges]
        self._first = np.cumsum([0, *counts])
        self._start = np.array([tokens.start for tokens in ranges], np.int64)

    @property
    def width(self) -> int:
        """Tokens from a window's first input to its last label."""
        return self.seq_len + self.shift

    @property
    def name(self) -> str:
        """Difference from other windows of the same tokens, for fingerprints."""
        more = f", stride {self.stride}" if self.stride != self.seq_len else ""
        return f"windows of {self.seq_len}{more}" + (f", shift {self.shift}" if self.shift != 1 else "")

    def __len__(self) -> int:
        return int(self._first[-1])

    def starts(self, windows: np.ndarray) -> np.ndarray:
        """Return the token index of the first input of each of these windows (int64), int64."""
        if len(self._start) == 1:
            return windows * self.stride + self._start[0]
        parts = np.searchsorted(self._first, windows, side="right") - 1
        starts: np.ndarray = (windows - self._first[parts]) * self.stride + self._start[parts]
        return starts

    def before(self, tokens: np.ndarray) -> np.ndarray:
        """Return the number of windows that begin before each of these tokens (int64), int64."""
        counts = np.diff(self._first)
        found = np.zeros(len(tokens), np.int64)
        for start, count in zip(self._start.tolist(), counts.tolist(), strict=True):
            found += np.clip(-(-(tokens - start) // self.stride), 0, count)
        return found
