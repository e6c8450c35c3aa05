"""Workers read a map that is three times as large as the limit, twice (datasets#4883)."""

# /// case
# kind = "healthy"
# cause = ["none", "cache", "thrash"]
# limit_mb = 120
# ///

import mmap
import time

from kit import forked, touch_all, wait_for, written_file

path = written_file(360, "data.arrow")


def read() -> None:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for _ in range(2):
            touch_all(mapped)
            time.sleep(0.2)


for worker in [forked(read) for _ in range(2)]:
    assert wait_for(worker) == 0
