"""A worker in the step is killed, the run takes no notice, run and job end with 0."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# victim = "child"
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# ///

from kit import forked, grow, wait_for

wait_for(forked(lambda: grow(400, seconds=4)))
