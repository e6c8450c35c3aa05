"""Checkpoints for a fast restart go to /dev/shm, each a new file, and count as the run's memory."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# limit_mb = 220
# shm_mb = 400
# ///

import os
import time

from kit import MB

model = [bytes(MB).replace(b"\0", b"w") for _ in range(40)]
for step in range(30):
    with open(f"/dev/shm/checkpoint_{os.getpid()}_{step}.pt", "wb") as file:
        for block in model:
            file.write(block)
            time.sleep(0.005)
    time.sleep(0.1)
