"""A job of a partition with a higher tier takes the node; this one may not be requeued."""

# /// case
# kind = "death"
# verdict = ["terminated", "killed_from_outside"]
# says = ["preempt"]
# limit_mb = 150
# needs = ["slurm", "alone"]
# [slurm]
# script = "srun {run}"
# options = ["--no-requeue", "--exclusive"]
# then = "sbatch -p high --exclusive -w {node} --mem=100 --time=1 -o /dev/null --wrap 'sleep 1'"
# ///

import time

from kit import grow, tell

held = grow(40, seconds=1.5)
tell("ready")
time.sleep(120)
