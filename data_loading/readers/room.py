"""How much page cache this job has room for: what a set that is read again and again can stay in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memory import snapshot


def room_bytes() -> int | None:
    """Of the limit that counts (a cgroup's, else the machine's memory), what nothing unreclaimable holds, and
    no more than the kernel could give (MemAvailable, proc(5)); None where the system does not tell.
    """
    found = snapshot()
    limit, used, available = found.limit_bytes, found.unreclaimable_bytes, found.host.available_bytes
    if limit is None or used is None:
        return available
    left = max(limit - used, 0)
    return left if available is None else min(left, available)


def size_bytes(buffers: Sequence[np.ndarray]) -> int:
    """Of all the files of a set."""
    return sum(buffer.nbytes for buffer in buffers)
