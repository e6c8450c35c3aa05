"""A monitor runs as a step and is ended by the script after the training: srun calls that an error."""

# /// case
# kind = "healthy"
# limit_mb = 160
# needs = ["slurm"]
# [slurm]
# script = """
# srun --overlap --mem=20 sleep 120 &
# monitor=$!
# srun --overlap --mem=120 {run}
# status=$?
# kill $monitor
# wait $monitor
# exit $status
# """
# ///

import time

from kit import grow

weights = grow(60, seconds=2.0)
time.sleep(1.5)
