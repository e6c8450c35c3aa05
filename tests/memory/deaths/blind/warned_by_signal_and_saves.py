"""SIGUSR1 warns of the end of the allocation; it writes checkpoints beyond the limit and ends in time."""

# /// case
# kind = "healthy"
# limit_mb = 110
# beside = "outside"
# ///

import os
import signal
import time
from types import FrameType

from kit import BESIDE, FOLDER, MB, grow, tell, told

warned = False


def warn(number: int, frame: FrameType | None) -> None:
    global warned
    warned = True
    print(f"warned by {signal.Signals(number).name}", flush=True)


def save(step: int) -> None:
    with open(FOLDER / f"checkpoint_{step}.bin", "wb") as file:
        for block in weights * 2:  # the moments too
            file.write(block)
    (FOLDER / f"checkpoint_{step - 2}.bin").unlink(missing_ok=True)


if BESIDE:
    pid = int(told("training"))
    time.sleep(0.6)
    os.kill(pid, signal.SIGUSR1)
else:
    signal.signal(signal.SIGUSR1, warn)
    weights = grow(30, seconds=0.6)
    tell("training", str(os.getpid()))
    for step in range(60):
        time.sleep(0.1)
        if step % 4 == 0:
            save(step // 4)
        if warned and step > 16:
            break
    print(f"ended early at step {step} with {len(weights) * MB} bytes of weights", flush=True)
