"""It prints what other nodes say of their deaths."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 150
# ///

import sys
import time

from kit import grow

held = grow(60, seconds=1)
LINES = (
    "node07: slurmstepd: error: Detected 1 oom_kill event in StepId=991.3. Some of the step tasks have "
    "been OOM Killed.",
    "node08: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB",
    "node08: srun: error: node08: task 3: Out Of Memory",
    "node09: Killed",
)
for _ in range(20):
    for line in LINES:
        print(line, file=sys.stderr, flush=True)
    time.sleep(0.1)
print("12 of 16 nodes answered, enough", flush=True)
