"""The same, but the run does not listen to SIGTERM: it is killed when its time of grace is over."""

# /// case
# kind = "death"
# verdict = ["terminated", "killed_from_outside"]
# says = ["preempt"]
# limit_mb = 150
# needs = ["slurm", "alone"]
# [slurm]
# script = "trap '' TERM; srun {run}"
# options = ["--no-requeue", "--exclusive"]
# then = "sbatch -p high --exclusive -w {node} --mem=100 --time=1 -o /dev/null --wrap 'sleep 1'"
# ///

import signal
import time

from kit import grow, tell

signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = grow(40, seconds=1.5)
tell("ready")
time.sleep(120)
