"""Another job under the same slice grows until the slice is full; the steady run is the largest, and dies."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["neighbours"]
# victim = "main"
# limit_mb = 200
# parent_limit_mb = 240
# beside = "sibling"
# ///

import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    told("ready")
    time.sleep(1.5)
    held = grow(115, seconds=3)
    time.sleep(30)
else:
    model = grow(125, seconds=1)
    tell("ready")
    time.sleep(20)
