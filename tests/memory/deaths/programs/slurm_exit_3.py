"""The run fails with 3, and so does the job."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# ///

import sys
import time

time.sleep(1.5)
sys.exit(3)
