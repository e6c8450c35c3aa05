"""Checkpoints fill the job's page cache up to --mem; done."""

# /// case
# kind = "healthy"
# limit_mb = 120
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# ///

import time

from kit import written_file

written_file(300)
time.sleep(2)
