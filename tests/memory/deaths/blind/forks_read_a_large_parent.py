"""Six forked readers of a large table: their resident sets add up to several times the limit."""

# /// case
# kind = "healthy"
# limit_mb = 190
# ///

import time

from kit import MB, PAGE, forked, wait_for

table = memoryview(b"x" * (100 * MB))


def read() -> None:
    for _ in range(3):
        sum(table[::PAGE])
        time.sleep(1)


raise SystemExit(max(wait_for(pid) for pid in [forked(read) for _ in range(6)]))
