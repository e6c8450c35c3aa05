"""Decoded arrays lie in /dev/shm up to nineteen twentieths of it, are read from there, and are removed."""

# /// case
# kind = "healthy"
# limit_mb = 150
# shm_mb = 80
# ///

import time
from pathlib import Path

import numpy as np

SCRATCH = Path("/dev/shm")
paths = [SCRATCH / f"decoded_{number}.npy" for number in range(19)]
for number, path in enumerate(paths):
    np.save(path, np.full((4 << 20) - 4096, number, dtype=np.uint8))
    time.sleep(0.08)
total = 0
for path in paths:
    total += int(np.load(path, mmap_mode="r")[::4096].sum())
    time.sleep(0.04)
for path in paths:
    path.unlink()
    time.sleep(0.02)
print("sum", total)
