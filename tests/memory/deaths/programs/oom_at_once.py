"""One allocation, far above the limit, before anything was seen to grow."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 150
# ///

import time

time.sleep(1.5)
held = bytearray(b"x") * (600 << 20)
