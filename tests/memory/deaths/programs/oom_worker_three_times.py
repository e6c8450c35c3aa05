"""A worker is killed three times and started anew; the run itself ends with 0."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# victim = "child"
# limit_mb = 150
# says = ["3 kills"]
# ///

import time

from kit import forked, grow, wait_for

for _ in range(3):
    print(wait_for(forked(lambda: grow(400, seconds=1))))
    time.sleep(0.5)
