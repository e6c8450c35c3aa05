"""The order of an epoch: a keyed permutation of range(n), computed index by index.

Nothing of the size of n is stored. An index i is read as (i // b, i % b) in Z_a x Z_b with
a = ceil(sqrt n), b = ceil(n / a), and goes through six half-rounds of a Feistel network (Luby and
Rackoff, 1988, on a product of two cyclic groups): each adds to one half a keyed hash of the other.
Adding is invertible, so the whole is a bijection of the a * b pairs; the at most a - 1 results that
are not below n are sent through again until they are (cycle walking, for one index in sqrt n).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

LARGEST = 1 << 48
"""Both halves must be exact as float32, and indices as float64."""

_ROUNDS = 3
_LOW = np.uint32(0x7FEB352D)
_HIGH = np.uint32(0x846CA68B)  # multipliers of the hash by C. Wellons, "lowbias32"


class Permutation:
    """A bijection of range(n) that depends on (seed, epoch)."""

    def __init__(self, n: int, seed: int, epoch: int) -> None:
        if not 1 <= n <= LARGEST:
            raise ValueError(f"a permutation needs 1 to 2**48 elements, got {n}")
        self.n = n
        self._a = math.isqrt(n - 1) + 1
        self._b = -(-n // self._a)
        # Seed and epoch are hashed together: neighbouring seeds share no order of any epoch.
        digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
        keys = np.frombuffer(digest, "<u4")[: 2 * _ROUNDS]
        self._keys = [np.uint32(key) for key in keys]

    def __call__(self, indices: np.ndarray, tweaks: np.ndarray | None = None) -> np.ndarray:
        """Return the images of the indices (any integers in [0, n)), int64, of the same length.

        tweaks: uint32 of the same length: each is a bijection of its own.
        """
        images = self._once(np.asarray(indices, np.int64), tweaks)
        outside = np.flatnonzero(images >= self.n)
        while len(outside):
            images[outside] = self._once(images[outside], None if tweaks is None else tweaks[outside])
            outside = outside[images[outside] >= self.n]
        return images

    def _once(self, indices: np.ndarray, tweaks: np.ndarray | None = None) -> np.ndarray:
        # Division in float64: its floor is exact in this range, and it is several times faster than int64's.
        left = (indices / self._b).astype(np.int64)
        right = (indices - left * self._b).astype(np.uint32)
        left = left.astype(np.uint32)
        keys: list[Any] = self._keys if tweaks is None else [key ^ tweaks for key in self._keys]
        for first, second in zip(keys[::2], keys[1::2], strict=True):
            _add(left, right, first, self._a)
            _add(right, left, second, self._b)
        images = left.astype(np.int64)
        images *= self._b
        images += right
        return images


def _add(half: np.ndarray, other: np.ndarray, key: Any, size: int) -> None:
    """half = (half + hash(other)) mod size, in place, in uint32 lanes. key: one uint32, or one for each."""
    mixed = other ^ key
    mixed *= _LOW
    mixed ^= mixed >> np.uint32(15)
    mixed *= _HIGH
    # To [0, size] by one float32 multiplication; size itself counts as 0 below.
    scaled = mixed.astype(np.float32)
    scaled *= np.float32(size / 2**32)
    mixed = scaled.astype(np.uint32)
    half += mixed
    # half is below 2 * size: subtract size once, or nothing, by the smaller in wrapped arithmetic.
    np.subtract(half, np.uint32(size), out=mixed)
    np.minimum(half, mixed, out=half)
