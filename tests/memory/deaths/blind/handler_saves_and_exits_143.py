"""A run at nine tenths of its limit is asked to end, saves, and exits with 143 itself."""

# /// case
# kind = "death"
# verdict = ["terminated"]
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
    time.sleep(1.5)
    os.kill(int((FOLDER / "pid").read_text()), signal.SIGTERM)
    time.sleep(30)
    sys.exit()


def save(number: int, frame: FrameType | None) -> None:
    print("got signal 15, saving a checkpoint", file=sys.stderr, flush=True)
    (FOLDER / "checkpoint").write_bytes(b"x" * 1000)
    time.sleep(0.5)
    sys.exit(143)


signal.signal(signal.SIGTERM, save)
weights = grow(115, seconds=2.0)
(FOLDER / "pid.part").write_text(str(os.getpid()))
(FOLDER / "pid.part").rename(FOLDER / "pid")
time.sleep(30)
