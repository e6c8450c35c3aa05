"""SIGTERM to the run, which does not handle it."""

# /// case
# kind = "death"
# verdict = ["terminated"]
# victim = "main"
# limit_mb = 300
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    os.kill(int(told("ready")), signal.SIGTERM)
else:
    held = grow(40, seconds=1)
    tell("ready", str(os.getpid()))
    time.sleep(30)
