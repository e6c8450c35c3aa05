"""The same, but the run does not listen to SIGTERM and is killed."""

# /// case
# kind = "death"
# verdict = ["timeout"]
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# options = ["--time=1"]
# ///

import signal
import time

from kit import grow

signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = grow(40, seconds=1.5)
time.sleep(300)
