"""The kernel kills a worker for the limit; its parent waits for its batch until it is asked to end."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "child"
# limit_mb = 130
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, forked, grow, tell, told

if BESIDE:
    pid = int(told("ready"))
    time.sleep(6)
    os.kill(pid, signal.SIGTERM)
    time.sleep(30)
else:
    model = grow(20, seconds=0.5)
    tell("ready", str(os.getpid()))
    batches, writes = os.pipe()
    forked(lambda: grow(200, seconds=4))
    os.read(batches, 1)  # the parent holds the other end open too: no end of file ever comes
