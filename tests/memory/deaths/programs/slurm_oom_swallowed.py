"""The step is killed, the script goes on, and the job says COMPLETED 0:0."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# says = ["COMPLETED"]
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "srun {run}\nexit 0"
# ///

from kit import grow

grow(400, seconds=4)
