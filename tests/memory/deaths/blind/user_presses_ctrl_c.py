"""The user interrupts a run that holds most of its memory."""

# /// case
# kind = "death"
# verdict = ["terminated"]
# limit_mb = 200
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    pid = int(told("pid"))
    time.sleep(1)
    os.kill(pid, signal.SIGINT)
else:
    held = grow(140, seconds=2)
    tell("pid", str(os.getpid()))
    for _ in range(100):
        time.sleep(0.2)
