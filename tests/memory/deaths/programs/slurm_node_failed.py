"""The node loses its power: run, supervisor and slurmd are gone at one stroke."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside", "unknown"]
# limit_mb = 150
# needs = ["slurm", "alone"]
# [slurm]
# script = "srun {run}"
# options = ["--no-requeue", "--nodelist=n2"]
# then = "kill-node"
# ///

import time

from kit import grow, tell

held = grow(40, seconds=2.5)
tell("ready")
time.sleep(120)
