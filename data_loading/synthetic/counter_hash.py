"""A hash of token indices: the same number for the same index, in any process and order.

Counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): nothing is
kept between draws. Multiply and xor-shift in 64 bits, with the multipliers of splitmix64 (Steele, Lea and
Flood, 2014). One key is used before the first multiplication and another after it, so that the
numbers of two keys are no shift of each other, as with one key that is added to the counter.
"""

from __future__ import annotations

import hashlib

import numpy as np

_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
BITS = 32
"""Bits of a draw."""


class CounterHash:
    """A hash whose keys are a hash of all names: neighbouring seeds share nothing."""

    def __init__(self, *names: object) -> None:
        digest = hashlib.sha256(" ".join(map(str, names)).encode()).digest()
        self._key, self._other = (np.uint64(int.from_bytes(digest[i : i + 8], "little")) for i in (0, 8))

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        """Return draws of 32 bits as uint64, in the shape of the indices (int64, also below 0)."""
        mixed = indices.view(np.uint64) ^ self._key
        mixed *= _FIRST
        shifted = mixed >> np.uint64(32)
        mixed ^= shifted
        mixed ^= self._other
        mixed *= _SECOND
        np.right_shift(mixed, np.uint64(29), out=shifted)
        mixed ^= shifted
        mixed *= _FIRST
        mixed >>= np.uint64(64 - BITS)
        return mixed


def scaled(draws: np.ndarray, below: int, bits: int = BITS) -> np.ndarray:
    """Return draws of `bits` bits, scaled evenly to [0, below), as uint64."""
    found: np.ndarray = draws * np.uint64(below)
    found >>= np.uint64(bits)
    return found
