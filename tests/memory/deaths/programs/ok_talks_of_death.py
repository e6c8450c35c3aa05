"""A log full of alarming words."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import time

print("Killed 3 stale jobs; oom-kill handler installed; MemoryError will be retried; Bus error tests: passed")
print("slurmstepd: note: no oom_kill event found")
print("RuntimeError: DataLoader worker (pid 1) is killed by signal: Killed.  <- example from the docs")
time.sleep(2)
print("done")
