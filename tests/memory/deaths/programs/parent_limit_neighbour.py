"""A job beside this one fills the cgroup that both stand in; this one is killed."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["neighbours"]
# victim = "main"
# limit_mb = 1000
# parent_limit_mb = 200
# beside = "sibling"
# ///

import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    told("ready")
    held = grow(95, seconds=3)
    told("never", 30)
else:
    held = grow(105, seconds=1.5)
    tell("ready")
    time.sleep(30)
