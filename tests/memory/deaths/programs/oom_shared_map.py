"""Shared anonymous maps, as of a prefetch queue, fill the limit."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem", "prefetch"]
# limit_mb = 150
# ///

import mmap

from kit import MB, over

queue = mmap.mmap(-1, 400 * MB)


def fill(number: int) -> None:
    queue[number * MB : (number + 1) * MB] = b"x" * MB


over(12, 400, fill)
