"""The run outgrows memory.high, the kernel slows it down to a crawl, and its user ends it with SIGTERM."""

# /// case
# kind = "death"
# verdict = ["terminated"]
# says = ["memory.high"]
# limit_mb = 250
# high_mb = 70
# beside = "outside"
# needs = ["v2"]
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    pid = int(told("ready"))
    time.sleep(25)
    os.kill(pid, signal.SIGTERM)
    time.sleep(60)
else:
    tell("ready", str(os.getpid()))
    samples = grow(160, seconds=6)
    time.sleep(120)
