"""60% of the limit lies in /dev/shm for a while and is given back."""

# /// case
# kind = "healthy"
# limit_mb = 150
# shm_mb = 500
# ///

import time
from pathlib import Path

from kit import MB

with open("/dev/shm/batches", "wb") as file:
    for _ in range(90):
        file.write(b"x" * MB)
time.sleep(1.5)
Path("/dev/shm/batches").unlink()
time.sleep(1)
