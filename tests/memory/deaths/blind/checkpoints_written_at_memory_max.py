"""Checkpoints larger than the limit are written: memory.events counts `max`, but pages can be freed."""

# /// case
# kind = "healthy"
# limit_mb = 90
# needs = ["v2"]
# ///

import time

from kit import grow, written_file

model = grow(20, seconds=1)
for step in range(3):
    written_file(70, f"step_{step}.ckpt")
    time.sleep(1)
