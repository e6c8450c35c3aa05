"""The matrix of all distances is refused; it logs the traceback and computes it in blocks instead."""

# /// case
# kind = "healthy"
# limit_mb = 90
# ///

import time
import traceback

import numpy as np

POINTS = 1 << 24
points = np.arange(POINTS // 8, dtype=np.float32)  # an eighth of them is at hand
time.sleep(0.5)
try:
    distances = np.empty((POINTS, POINTS), dtype=np.float64)  # 2 PiB
except MemoryError:
    traceback.print_exc()
    print("falling back to blocks", flush=True)

smallest = np.inf
for begin in range(0, 100, 5):
    block = np.abs(points[begin : begin + 5, None] - points[None, 1000:500_000])
    smallest = min(smallest, float(block.min()))
    time.sleep(0.1)
print("smallest", smallest)
