"""A site that sums RSS and kills: a mapped file, which would have been given back, is counted as use."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside", "terminated"]
# cause = ["rss_polling"]
# limit_mb = 150
# needs = ["slurm", "poll"]
# [slurm]
# script = "srun {run}"
# ///

import mmap
import time

from kit import MB, over, token_file, touch_all

with open(token_file(600), "rb") as file:
    tokens = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
over(5, 60, lambda at: touch_all(tokens, begin=at * 10 * MB, end=(at + 1) * 10 * MB))
time.sleep(30)
