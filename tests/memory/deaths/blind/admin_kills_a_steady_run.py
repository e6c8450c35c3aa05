"""Someone clears the node with kill -9 while the run stands steady at two thirds of its limit."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside"]
# victim = "main"
# limit_mb = 200
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    pid = int(told("steady"))
    time.sleep(0.7)
    os.kill(pid, signal.SIGKILL)
else:
    weights = grow(115, seconds=1.5)
    time.sleep(1)
    tell("steady", str(os.getpid()))
    for step in range(100):
        weights[step % len(weights)][0] = step
        time.sleep(0.1)
