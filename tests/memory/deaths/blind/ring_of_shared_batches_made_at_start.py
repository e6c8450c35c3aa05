"""A ring of batches in shared memory takes three quarters of the job from the first second to the last."""

# /// case
# kind = "healthy"
# limit_mb = 180
# ///

import mmap

from kit import MB, forked, over, wait_for

SLOTS, SLOT = 34, 4 * MB
ring = mmap.mmap(-1, SLOTS * SLOT)
batch = b"x" * SLOT


def fill(slot: int) -> None:
    ring[slot * SLOT : (slot + 1) * SLOT] = batch


for slot in range(SLOTS):
    fill(slot)


def load(first: int) -> None:
    over(4.0, 60, lambda number: fill((first + 3 * number) % SLOTS))


loaders = [forked(lambda first=first: load(first)) for first in range(3)]
assert all(wait_for(pid) == 0 for pid in loaders)
