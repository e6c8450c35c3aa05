"""Six workers started by spawn load the same vocabulary each; none is large, all together are."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["workers"]
# victim = "child"
# limit_mb = 170
# ///

import subprocess
import sys
import time

from kit import grow

if sys.argv[1:] == ["worker"]:
    vocabulary = grow(30, seconds=3)
    time.sleep(2)
    sys.exit(0)
workers = [subprocess.Popen([sys.executable, __file__, "worker"]) for _ in range(6)]
ends = [worker.wait() for worker in workers]
if any(ends):
    raise RuntimeError(f"workers exited unexpectedly: {ends}")
