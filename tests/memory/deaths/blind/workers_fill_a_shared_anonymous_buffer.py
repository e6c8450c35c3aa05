"""Loader workers write their batches into one shared anonymous mapping that is larger than the limit."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# limit_mb = 130
# ///

import mmap
import sys

from kit import MB, forked, over, wait_for

PART = 50
buffer = mmap.mmap(-1, 4 * PART * MB)


def fill(worker: int) -> None:
    begin = worker * PART

    def write(number: int) -> None:
        at = (begin + number) * MB
        buffer[at : at + MB] = b"b" * MB

    over(4, PART, write)


ends = [wait_for(pid) for pid in [forked(lambda worker=worker: fill(worker)) for worker in range(4)]]
if any(ends):
    print(f"RuntimeError: DataLoader worker exited unexpectedly, exit codes {ends}", file=sys.stderr)
    sys.exit(1)
