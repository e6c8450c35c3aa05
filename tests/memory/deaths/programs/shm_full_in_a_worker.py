"""A worker dies of SIGBUS, and the main process says it in torch's words."""

# /// case
# kind = "death"
# verdict = ["shm_full"]
# victim = "child"
# limit_mb = 300
# shm_mb = 16
# ///

import mmap
import os
import time
from pathlib import Path

from kit import MB, forked, over, wait_for


def fill() -> None:
    descriptor = os.open("/dev/shm/torch_12345_1", os.O_RDWR | os.O_CREAT)
    Path("/dev/shm/torch_12345_1").unlink()
    os.ftruncate(descriptor, 64 * MB)
    batches = mmap.mmap(descriptor, 64 * MB)
    over(3, 64, lambda at: batches.__setitem__(slice(at * MB, (at + 1) * MB), b"x" * MB))


time.sleep(1)
worker = forked(fill)
if wait_for(worker) != 0:
    raise RuntimeError(
        f"DataLoader worker (pid {worker}) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit."
    )
