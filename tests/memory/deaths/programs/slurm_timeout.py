"""The time limit of the job is reached: SIGTERM, and KillWait later SIGKILL."""

# /// case
# kind = "death"
# verdict = ["timeout"]
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# options = ["--time=1"]
# ///

import time

from kit import grow

held = grow(40, seconds=1.5)
time.sleep(300)
