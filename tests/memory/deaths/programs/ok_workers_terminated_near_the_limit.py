"""Workers hold most of the limit and are terminated at the end."""

# /// case
# kind = "healthy"
# limit_mb = 200
# ///

import os
import signal
import time

from kit import forked, grow, wait_for

workers = [forked(lambda: (grow(40, seconds=1.5), time.sleep(60))) for _ in range(3)]
time.sleep(2.5)
for worker in workers:
    os.kill(worker, signal.SIGTERM)
for worker in workers:
    wait_for(worker)
