"""SIGTERM to the supervisor, as a scheduler sends it; it is passed on."""

# /// case
# kind = "death"
# verdict = ["terminated"]
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
    tell("ready", str(os.getppid()))
    time.sleep(30)
