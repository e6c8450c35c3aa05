"""Tokens are staged in /dev/shm, read, and removed at the end."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 200
# shm_mb = 150
# ///

import time
from pathlib import Path

from kit import MB

staged = Path("/dev/shm/tokens.bin")
with open(staged, "wb") as file:
    for _ in range(130):
        file.write(b"t" * MB)
        time.sleep(0.01)
time.sleep(1)
with open(staged, "rb") as file:
    print(len(file.read(16 * MB)))
staged.unlink()
time.sleep(0.5)
