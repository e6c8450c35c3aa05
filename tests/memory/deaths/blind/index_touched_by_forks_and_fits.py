"""Forked workers touch every object of an index, and all copies fit."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 260
# ///

import time

from kit import forked, wait_for

index = [f"/data/{n:08d}.jpg" for n in range(300_000)]
time.sleep(0.5)


def read() -> None:
    for part in range(20):
        sum(map(len, index[part * 15_000 : (part + 1) * 15_000]))
        time.sleep(0.1)


for worker in [forked(read) for _ in range(3)]:
    assert wait_for(worker) == 0
