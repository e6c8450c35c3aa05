"""srun's step is killed by the kernel; the job says FAILED, its step row OUT_OF_MEMORY."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# ///

from kit import grow

grow(400, seconds=5)
