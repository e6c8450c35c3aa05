"""`kill -9` by somebody, in a cgroup where an earlier command was killed for memory."""

# /// case
# kind = "death"
# verdict = ["killed_from_outside"]
# victim = "main"
# limit_mb = 120
# before = "job"
# beside = "outside"
# ///

import os
import signal
import sys
import time

from kit import BESIDE, grow, tell, told

if sys.argv[1:] == ["before"]:
    grow(300, seconds=1)
elif BESIDE:
    os.kill(int(told("ready")), signal.SIGKILL)
else:
    held = grow(30, seconds=1)
    tell("ready", str(os.getpid()))
    time.sleep(30)
