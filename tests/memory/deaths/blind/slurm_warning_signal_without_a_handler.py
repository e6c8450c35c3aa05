"""The job gets SIGUSR1 as a warning before its end, but the program has no handler for it and dies of it."""

# /// case
# kind = "death"
# verdict = ["terminated"]
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# then = "scancel --signal=USR1 {job}"
# ///

import time

from kit import grow, tell

model = grow(60, seconds=2)
tell("ready")
time.sleep(40)
