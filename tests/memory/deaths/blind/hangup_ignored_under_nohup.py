"""The terminal is closed, but the run was started by nohup and ignores the signal."""

# /// case
# kind = "healthy"
# limit_mb = 150
# command = ["nohup", "{python}", "{program}"]
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    pid = int(told("ready"))
    time.sleep(1)
    os.kill(pid, signal.SIGHUP)
    time.sleep(30)
else:
    model = grow(60, seconds=1)
    tell("ready", str(os.getpid()))
    until = time.monotonic() + 4
    while time.monotonic() < until:
        time.sleep(0.1)
