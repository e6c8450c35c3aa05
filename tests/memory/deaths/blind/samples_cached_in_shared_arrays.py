"""Decoded samples are cached in shared arrays so that the workers need not decode again; all do not fit."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# limit_mb = 150
# ///

import mmap
import time

import numpy as np
from kit import forked, over

SAMPLE = 4 << 20
cached: list[mmap.mmap] = []
arrays: list[np.ndarray] = []


def decode(number: int) -> None:
    shared = mmap.mmap(-1, SAMPLE)  # anonymous and shared
    array = np.frombuffer(shared, dtype=np.uint8)
    array[:] = number % 251
    cached.append(shared)
    arrays.append(array)


decode(0)
workers = [forked(lambda: time.sleep(5)) for _ in range(2)]
over(3, 60, lambda number: decode(number + 1))
print("cached", len(arrays), sum(int(array[0]) for array in arrays))
