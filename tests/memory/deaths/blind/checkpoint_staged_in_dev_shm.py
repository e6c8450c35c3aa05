"""Checkpoints are staged in /dev/shm because that is fast; the third one has no room there."""

# /// case
# kind = "death"
# verdict = ["shm_full"]
# limit_mb = 250
# shm_mb = 64
# ///

import time
from pathlib import Path

from kit import MB, grow

weights = grow(24, seconds=0.5)
for step in (100, 200, 300):
    time.sleep(0.5)
    with open(Path("/dev/shm") / f"checkpoint_{step}.bin", "wb") as file:
        for block in weights:
            file.write(block)
    print(f"step {step}: saved {len(weights) * MB} bytes", flush=True)
