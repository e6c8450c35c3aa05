"""The step was given less than half of the job's memory by `srun --mem` and outgrows that."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "main"
# limit_mb = 240
# needs = ["slurm"]
# [slurm]
# script = "srun --mem=100 {run}"
# ///

from kit import as_a_run, grow

from memory import stage

with as_a_run(), stage("preprocess"):
    table = grow(200, seconds=6.0)
