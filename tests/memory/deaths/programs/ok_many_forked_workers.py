"""Eight forked workers read one large array of bytes: the sum of RSS is eight times what is there."""

# /// case
# kind = "healthy"
# limit_mb = 250
# ///

import time

from kit import MB, PAGE, forked, wait_for

data = bytearray(b"x") * (70 * MB)


def read_all() -> None:
    sum(data[at] for at in range(0, len(data), PAGE))
    time.sleep(2)


for worker in [forked(read_all) for _ in range(8)]:
    wait_for(worker)
