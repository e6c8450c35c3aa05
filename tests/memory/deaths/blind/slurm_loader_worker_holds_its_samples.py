"""A loader worker in a job step keeps what it has read; the kernel kills it, the run says so and fails."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "child"
# limit_mb = 140
# needs = ["slurm"]
# [slurm]
# script = "srun {run}"
# ///

import signal
import time

from kit import forked, grow, wait_for

model = grow(25, seconds=1)
pid = forked(lambda: grow(300, seconds=5))
status = wait_for(pid)
time.sleep(0.5)
if status < 0:
    name = signal.Signals(-status).name
    raise RuntimeError(f"DataLoader worker (pid(s) {pid}) exited unexpectedly, signal {name}")
