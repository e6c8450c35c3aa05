"""Five workers read a table in shared memory: RSS adds up to four times the limit, the table counts once."""

# /// case
# kind = "healthy"
# limit_mb = 170
# near_limit = false
# ///

import mmap
import time

from kit import MB, forked, touch_all, wait_for

table = mmap.mmap(-1, 100 * MB)
for _ in range(100):
    table.write(b"x" * MB)


def read() -> None:
    touch_all(table)
    time.sleep(2)


for pid in [forked(read) for _ in range(5)]:
    assert wait_for(pid) == 0
