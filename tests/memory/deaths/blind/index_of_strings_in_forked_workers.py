"""Three forked workers only read a list of strings, and each look writes to a reference count."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["copy_on_write"]
# limit_mb = 190
# ///

import time

from kit import forked, over, wait_for

PARTS = 30


def read(index: list[str]) -> None:
    size = len(index) // PARTS + 1
    lengths = []
    over(2.5, PARTS, lambda part: lengths.append(sum(map(len, index[part * size : (part + 1) * size]))))
    time.sleep(0.5)


index = [f"/data/images/class_{number % 1000:04d}/image_{number:09d}.jpg" for number in range(700_000)]
time.sleep(0.8)
workers = [forked(lambda: read(index)) for _ in range(3)]
for status in [wait_for(worker) for worker in workers]:
    if status != 0:
        raise RuntimeError(f"a worker ended with {status}")
