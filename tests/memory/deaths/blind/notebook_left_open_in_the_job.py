"""A notebook kernel left open in the same job holds most of the memory."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["neighbours", "growth"]
# limit_mb = 260
# beside = "job"
# ///

import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    frame = grow(115, seconds=1)
    tell("open")
    time.sleep(60)
else:
    told("open")
    time.sleep(1)
    batch = grow(170, seconds=2.5)
    time.sleep(10)
