"""A worker is killed for memory, and its shard is done again in small parts."""

# /// case
# kind = "death"
# verdict = ["healthy", "oom_cgroup"]
# victim = "child"
# limit_mb = 150
# ///

import time

from kit import forked, grow, wait_for


def work(megabytes: int) -> None:
    grow(megabytes, seconds=1.2)


if wait_for(forked(lambda: work(300))) != 0:
    print("worker was killed, retrying in 4 parts", flush=True)
    for _ in range(4):
        assert wait_for(forked(lambda: work(30))) == 0
time.sleep(0.5)
