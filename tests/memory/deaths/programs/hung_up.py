"""SIGHUP: the terminal was closed."""

# /// case
# kind = "death"
# verdict = ["terminated"]
# limit_mb = 300
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, tell, told

if BESIDE:
    os.kill(int(told("ready")), signal.SIGHUP)
else:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    time.sleep(1)
    tell("ready", str(os.getpid()))
    time.sleep(30)
