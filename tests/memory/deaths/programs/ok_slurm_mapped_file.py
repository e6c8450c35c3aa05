"""A mapped file of five times --mem, under limits by the kernel: done."""

# /// case
# kind = "healthy"
# limit_mb = 120
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# ///

import mmap
import time

from kit import MB, over, token_file, touch_all

with open(token_file(600), "rb") as file:
    tokens = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
over(2, 60, lambda at: touch_all(tokens, begin=at * 10 * MB, end=(at + 1) * 10 * MB))
time.sleep(1)
