"""The scheduler's warning signal is handled, and the run goes on to its end."""

# /// case
# kind = "healthy"
# limit_mb = 150
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, tell, told

if BESIDE:
    os.kill(int(told("ready")), signal.SIGUSR1)
else:
    signal.signal(signal.SIGUSR1, lambda *_: tell("warned"))
    time.sleep(1)
    tell("ready", str(os.getppid()))  # through the supervisor
    told("warned")
    time.sleep(0.5)
