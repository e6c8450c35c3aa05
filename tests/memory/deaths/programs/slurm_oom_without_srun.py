"""The run stands in the batch script itself, which dies with it."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "exec {run}"
# ///

from kit import grow

grow(400, seconds=5)
