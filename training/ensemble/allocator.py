"""Keep freed memory of large tensors for the next step instead of returning it to the kernel.

Activations of many runs together are some MB each. glibc returns blocks of that size to the kernel when they
are freed, and the kernel makes each page again in the next step, which takes longer than the arithmetic.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""mallopt(3)."""
_LARGEST_FROM_HEAP = 32 << 20
"""Largest value that glibc allows."""
_KEPT_BYTES = 1 << 30
_AHEAD_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """Keep freed memory until this process ends; returns whether the C library can (glibc can)."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_MMAP_THRESHOLD, _LARGEST_FROM_HEAP), (_TRIM_THRESHOLD, _KEPT_BYTES), (_TOP_PAD, _AHEAD_BYTES))
    taken = [mallopt(name, value) == 1 for name, value in wanted]  # all of them, also after a refusal
    return all(taken)
