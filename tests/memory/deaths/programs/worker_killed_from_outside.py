"""Somebody kills a worker with SIGKILL, far from any limit; the main process gives up."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside", "failed"]
# victim = "child"
# limit_mb = 300
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, forked, grow, tell, told, wait_for

if BESIDE:
    os.kill(int(told("ready")), signal.SIGKILL)
else:
    held = grow(40, seconds=1)
    worker = forked(lambda: time.sleep(30))
    time.sleep(1.5)
    tell("ready", str(worker))
    status = wait_for(worker)
    raise RuntimeError(f"DataLoader worker (pid {worker}) is killed by signal: Killed. ")
