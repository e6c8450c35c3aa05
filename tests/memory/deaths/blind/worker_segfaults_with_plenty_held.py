"""A worker crashes in native code; memory is at two thirds (MhLiao/DB#94)."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 200
# ///

import ctypes
import time

from kit import forked, grow, wait_for

held = grow(115, seconds=2)


def decode() -> None:
    time.sleep(1)
    ctypes.string_at(0)


worker = forked(decode)
if wait_for(worker) != 0:
    raise RuntimeError(f"DataLoader worker (pid {worker}) is killed by signal: Segmentation fault. ")
