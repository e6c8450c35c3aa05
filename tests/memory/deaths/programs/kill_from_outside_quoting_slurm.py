"""`kill -9` by somebody, of a program that had just printed what Slurm writes at kills and ends."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside"]
# cause = ["none"]
# victim = "main"
# limit_mb = 150
# beside = "outside"
# ///

import os
import signal
import sys
import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    os.kill(int(told("ready")), signal.SIGKILL)
else:
    held = grow(30, seconds=1)
    sys.stderr.write(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.\n"
        "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO TIME LIMIT ***\n"
        "srun: error: n1: task 0: Out Of Memory\n"
    )
    tell("ready", str(os.getpid()))
    time.sleep(30)
