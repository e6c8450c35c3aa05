"""A feature server in the same job grows; the steady trainer is larger, and the kernel picks the trainer."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["neighbours"]
# victim = "main"
# limit_mb = 190
# beside = "job"
# needs = ["v2"]
# ///

import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    told("ready")
    time.sleep(3)
    features = grow(85, seconds=6)
    time.sleep(60)
else:
    model = grow(100, seconds=2)
    tell("ready")
    time.sleep(60)
