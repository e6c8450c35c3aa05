"""The cluster asks it to end; the handler writes a checkpoint and exits with 128 + SIGTERM."""

# /// case
# kind = "death"
# verdict = ["terminated"]
# limit_mb = 150
# beside = "outside"
# ///

import os
import signal
import sys
import time
from types import FrameType

from kit import BESIDE, FOLDER, grow, tell, told


def save_and_leave(number: int, frame: FrameType | None) -> None:
    print(f"got {signal.Signals(number).name}, saving", flush=True)
    with open(FOLDER / "checkpoint.bin", "wb") as file:
        for block in weights:
            file.write(block)
    sys.exit(128 + number)


if BESIDE:
    pid = int(told("training"))
    time.sleep(0.5)
    os.kill(pid, signal.SIGTERM)
else:
    weights = grow(60, seconds=1)
    signal.signal(signal.SIGTERM, save_and_leave)
    tell("training", str(os.getpid()))
    for _ in range(100):
        time.sleep(0.1)
