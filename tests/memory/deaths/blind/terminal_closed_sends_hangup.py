"""The laptop is shut, the connection goes, and the run that was started by hand gets SIGHUP."""

# /// case
# kind = "death"
# verdict = ["terminated"]
# limit_mb = 150
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    pid = int(told("ready"))
    time.sleep(2)
    os.kill(pid, signal.SIGHUP)
    time.sleep(30)
else:
    model = grow(70, seconds=1)
    tell("ready", str(os.getpid()))
    time.sleep(30)
