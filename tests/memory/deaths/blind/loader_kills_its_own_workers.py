"""At the end of each epoch the loader ends its workers with SIGKILL; they do not listen; all went well."""

# /// case
# kind = "healthy"
# limit_mb = 140
# ///

import os
import signal
import time

from kit import forked, grow, wait_for


def work() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    held = grow(25, seconds=0.8)
    until = time.monotonic() + 20
    while time.monotonic() < until and held:
        time.sleep(0.05)


for epoch in range(2):
    workers = [forked(work) for _ in range(4)]
    time.sleep(1.5)
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
    time.sleep(0.2)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    print("epoch", epoch, "workers ended with", [wait_for(worker) for worker in workers], flush=True)
