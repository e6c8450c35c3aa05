"""The run is done and leaves files in /dev/shm; a pity, but no death."""

# /// case
# kind = "healthy"
# limit_mb = 150
# shm_mb = 500
# ///

import time

from kit import MB

with open("/dev/shm/torch_left", "wb") as file:
    for _ in range(60):
        file.write(b"x" * MB)
time.sleep(1.5)
