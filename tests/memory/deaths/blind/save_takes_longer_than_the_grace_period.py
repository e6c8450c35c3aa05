"""A scheduler sends SIGTERM, waits two seconds for the checkpoint, and then sends SIGKILL."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside", "terminated"]
# limit_mb = 160
# beside = "outside"
# ///

import os
import signal
import sys
import time
from types import FrameType

from kit import BESIDE, FOLDER, grow

if BESIDE:
    while not (FOLDER / "pid").exists():
        time.sleep(0.05)
    pid = int((FOLDER / "pid").read_text())
    time.sleep(1.0)
    os.kill(pid, signal.SIGTERM)
    time.sleep(2.0)
    os.kill(pid, signal.SIGKILL)
    time.sleep(30)
    sys.exit()


def save(number: int, frame: FrameType | None) -> None:
    print("SIGTERM received: writing checkpoint, 1 of 48 files", flush=True)
    time.sleep(30)


signal.signal(signal.SIGTERM, save)
weights = grow(110, seconds=1.5)
(FOLDER / "pid.part").write_text(str(os.getpid()))
(FOLDER / "pid.part").rename(FOLDER / "pid")
time.sleep(30)
