"""A watchdog outside kills a run that makes no progress (no memory involved)."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside"]
# victim = "main"
# limit_mb = 220
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    pid = int(told("pid"))
    time.sleep(2.5)
    os.kill(pid, signal.SIGKILL)
else:
    held = grow(130, seconds=1.5)
    tell("pid", str(os.getpid()))
    print("[rank0] collective ALLREDUCE has been waiting for 600 s", flush=True)
    time.sleep(30)
