"""`kill -9` by somebody while page cache fills the limit: usage says 100%, nothing was short."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside"]
# victim = "main"
# limit_mb = 100
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, tell, told, written_file

if BESIDE:
    os.kill(int(told("ready")), signal.SIGKILL)
else:
    written_file(300)
    time.sleep(1.2)
    tell("ready", str(os.getpid()))
    time.sleep(30)
