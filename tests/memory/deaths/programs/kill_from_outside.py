"""`kill -9` by somebody, far from any limit."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside"]
# victim = "main"
# limit_mb = 300
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    os.kill(int(told("ready")), signal.SIGKILL)
else:
    held = grow(40, seconds=1)
    tell("ready", str(os.getpid()))
    time.sleep(30)
