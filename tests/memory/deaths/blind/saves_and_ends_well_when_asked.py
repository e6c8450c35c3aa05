"""SIGUSR1 asks it to save before the time is up; it saves, resumes and ends well."""

# /// case
# kind = "healthy"
# cause = ["none", "cache"]
# limit_mb = 180
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, FOLDER, grow, tell, told

if BESIDE:
    pid = int(told("pid"))
    time.sleep(0.5)
    os.kill(pid, signal.SIGUSR1)
else:
    saved = []
    signal.signal(signal.SIGUSR1, lambda number, frame: saved.append(number))
    weights = grow(80, seconds=1)
    tell("pid", str(os.getpid()))
    while not saved:
        time.sleep(0.05)
    with open(FOLDER / "checkpoint.bin", "wb") as file:
        for block in weights:
            file.write(block)
    time.sleep(1)
