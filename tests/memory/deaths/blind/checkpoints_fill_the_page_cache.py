"""Checkpoints larger than the limit are written one after another: the usage is at the limit, of pages."""

# /// case
# kind = "healthy"
# limit_mb = 90
# ///

import time

from kit import grow, written_file

model = grow(20, seconds=0.5)
for step in range(4):
    written_file(60, f"step_{step}.ckpt")
    time.sleep(0.7)
