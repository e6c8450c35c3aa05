"""SIGTERM comes at 70%; to save what it has it is copied, for which there is no room."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 150
# beside = "outside"
# ///

import os
import signal
import time

from kit import BESIDE, grow, tell, told


def save(*_: object) -> None:
    copies = []
    for each in held:
        copies.append(bytes(each))
        time.sleep(0.01)
    raise SystemExit(0)


if BESIDE:
    os.kill(int(told("ready")), signal.SIGTERM)
    time.sleep(20)
else:
    held = grow(95, 1)
    signal.signal(signal.SIGTERM, save)
    time.sleep(1)
    tell("ready", str(os.getpid()))
    time.sleep(20)
