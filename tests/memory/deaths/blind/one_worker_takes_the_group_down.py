"""With memory.oom.group a worker that grows takes the trainer, its other workers and the supervisor along."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# limit_mb = 150
# oom_group = true
# needs = ["v2"]
# ///

import time

from kit import forked, grow, wait_for

model = grow(20, seconds=1)
steady = [forked(lambda: time.sleep(60)) for _ in range(2)]
growing = forked(lambda: grow(300, seconds=6))
wait_for(growing)
time.sleep(30)
