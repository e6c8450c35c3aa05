"""The main process ends its workers by SIGKILL when all is done."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 200
# ///

import os
import signal
import time

from kit import forked, grow, wait_for

workers = [forked(lambda: (grow(30, seconds=1), time.sleep(30))) for _ in range(3)]
time.sleep(2.5)
for worker in workers:
    os.kill(worker, signal.SIGKILL)
    assert wait_for(worker) == -signal.SIGKILL
print("done", flush=True)
