"""A killed run left its files in /dev/shm; this one finds no room."""

# /// case
# kind = "death"
# verdict = ["shm_full"]
# limit_mb = 300
# shm_mb = 64
# before = "job"
# ///

import sys
import time

from kit import MB

if sys.argv[1:] == ["before"]:
    with open("/dev/shm/left_by_a_killed_run", "wb") as file:
        file.write(b"x" * (60 * MB))
else:
    time.sleep(1.2)
    with open("/dev/shm/batches", "wb", buffering=0) as file:
        for _ in range(20):
            if file.write(b"x" * MB) < MB:
                raise OSError(28, "No space left on device", file.name)
