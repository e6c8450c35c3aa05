"""Workers fill one cache in a shared map, and each reads what the others put there; all does not fit."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# limit_mb = 160
# ///

import mmap
import time

from kit import MB, forked, over

cache = mmap.mmap(-1, 400 * MB)


def serve(worker: int) -> None:
    def sample(number: int) -> None:
        if number % 3 == worker:
            cache[number * MB : (number + 1) * MB] = b"x" * MB
        before = max(0, number - 4)
        assert cache[before * MB : before * MB + MB : 4096] is not None

    over(5, 400, sample)


workers = [forked(lambda number=number: serve(number)) for number in range(3)]
time.sleep(7)
