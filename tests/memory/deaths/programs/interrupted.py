"""Ctrl-C: KeyboardInterrupt with its traceback."""

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
    os.kill(int(told("ready")), signal.SIGINT)
else:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    time.sleep(1)
    tell("ready", str(os.getpid()))
    time.sleep(30)
