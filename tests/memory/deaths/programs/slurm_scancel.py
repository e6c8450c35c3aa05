"""The user cancels the job."""

# /// case
# kind = "death"
# verdict = ["terminated", "killed_from_outside"]
# says = ["cancel"]
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# then = "scancel {job}"
# ///

import time

from kit import grow, tell

held = grow(40, seconds=1.5)
tell("ready")
time.sleep(120)
