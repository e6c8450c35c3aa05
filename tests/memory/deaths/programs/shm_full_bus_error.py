"""A map of a file in a /dev/shm that is full: SIGBUS."""

# /// case
# kind = "death"
# verdict = ["shm_full"]
# victim = "main"
# limit_mb = 300
# shm_mb = 32
# ///

import mmap
import os

from kit import MB, over

descriptor = os.open("/dev/shm/batches", os.O_RDWR | os.O_CREAT)
os.ftruncate(descriptor, 64 * MB)
batches = mmap.mmap(descriptor, 64 * MB)


def fill(number: int) -> None:
    batches[number * MB : (number + 1) * MB] = b"x" * MB


over(3, 64, fill)
