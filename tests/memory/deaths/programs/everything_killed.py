"""Run and supervisor are killed at one stroke, far from any limit: nobody is left to write the end."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside", "unknown"]
# limit_mb = 300
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    supervisor, main = map(int, told("ready").split())
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(main, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
else:
    held = grow(40, seconds=2.5)
    tell("ready", f"{os.getppid()} {os.getpid()}")
    time.sleep(30)
