"""The job is suspended for a more urgent one, resumed some seconds later, and ends well."""

# /// case
# kind = "healthy"
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# then = "scontrol suspend {job}; sleep 4; scontrol resume {job}"
# ///

import time

from kit import grow, tell

model = grow(70, seconds=1)
tell("ready")
for _ in range(40):
    time.sleep(0.1)
