"""Memory of large tensors that come again in every step is kept, in place of being asked for anew.

Activations of many runs together are some MB each. glibc gives what is so large back to the kernel as soon as
it is free, and every page of it has to be made again in the next step, which takes longer than its numbers.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""mallopt(3)."""
_LARGEST_FROM_HEAP = 32 << 20
"""The most that glibc allows."""
_KEPT_BYTES = 1 << 30
_AHEAD_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """For the rest of this process; whether the C library knows how (glibc does)."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_MMAP_THRESHOLD, _LARGEST_FROM_HEAP), (_TRIM_THRESHOLD, _KEPT_BYTES), (_TOP_PAD, _AHEAD_BYTES))
    taken = [mallopt(name, value) == 1 for name, value in wanted]  # all of them, whatever the first says
    return all(taken)
