"""Somebody stops the run with SIGSTOP to look at the node, and lets it continue two seconds later."""

# /// case
# kind = "healthy"
# limit_mb = 150
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    pid = int(told("ready"))
    time.sleep(1)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2)
    os.kill(pid, signal.SIGCONT)
    time.sleep(30)
else:
    model = grow(80, seconds=1)
    tell("ready", str(os.getpid()))
    for _ in range(30):
        time.sleep(0.1)
