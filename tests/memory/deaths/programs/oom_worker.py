"""One of three forked workers grows and is killed; the main process notices and gives up."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "child"
# limit_mb = 180
# ///

import time

from kit import forked, grow, wait_for

workers = [forked(lambda: grow(400, seconds=5)), *(forked(lambda: time.sleep(30)) for _ in range(2))]
status = wait_for(workers[0])
raise RuntimeError(f"worker (pid {workers[0]}) exited unexpectedly, status {status}")
