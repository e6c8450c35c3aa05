"""Workers hold batches ready in shared memory, each in a file of its own, faster than they are taken."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["prefetch"]
# limit_mb = 170
# shm_mb = 600
# ///

import mmap
import os
import time
from pathlib import Path

from kit import MB, forked, over


def work(worker: int) -> None:
    ready = []

    def batch(number: int) -> None:
        name = f"/dev/shm/torch_{os.getpid()}_{number}"
        with open(name, "w+b") as file:
            file.truncate(4 * MB)
            ready.append(mmap.mmap(file.fileno(), 4 * MB))
        Path(name).unlink()
        ready[-1][:] = bytes([worker]) * (4 * MB)

    over(5, 40, batch)


workers = [forked(lambda number=number: work(number)) for number in range(3)]
time.sleep(7)
