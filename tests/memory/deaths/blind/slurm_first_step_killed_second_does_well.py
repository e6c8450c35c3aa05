"""The first step of the job is another program, which the kernel kills; the run is the second step."""

# /// case
# kind = "healthy"
# limit_mb = 120
# needs = ["slurm"]
# [slurm]
# script = "srun tail /dev/zero || echo 'statistics failed, going on without'\nsrun {run}"
# ///

import time

from kit import grow

model = grow(40, seconds=2)
time.sleep(2)
