"""SIGTERM is handled: the run saves, and ends with 0."""

# /// case
# kind = "healthy"
# limit_mb = 150
# beside = "outside"
# ///

import os
import signal
import sys
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    os.kill(int(told("ready")), signal.SIGTERM)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    held = grow(40, seconds=1)
    tell("ready", str(os.getpid()))
    time.sleep(30)
