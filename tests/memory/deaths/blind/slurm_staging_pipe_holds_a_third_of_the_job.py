"""A pipeline in the batch script holds a third of the job's memory while the step grows into the rest."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["neighbours", "growth", "leak"]
# victim = "main"
# limit_mb = 200
# needs = ["slurm"]
# [slurm]
# script = """
# { head -c 65000000 /dev/zero; sleep 60; } | tail > /dev/null &
# srun --overlap {run}
# status=$?
# kill $!
# exit $status
# """
# ///

import time

from kit import grow

time.sleep(1.0)
features = grow(220, seconds=6.0)
