"""The main process ends its worker with SIGKILL when all is done."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import os
import signal
import time

from kit import forked, grow, wait_for

worker = forked(lambda: (grow(50, seconds=1), time.sleep(60)))
time.sleep(2)
os.kill(worker, signal.SIGKILL)
wait_for(worker)
