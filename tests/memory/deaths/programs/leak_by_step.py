"""1 MB more each step, with stage records, until the kernel kills."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["leak"]
# victim = "main"
# limit_mb = 200
# ///

import time

from kit import MB, as_a_run

from memory import stage

held = []
with as_a_run():
    for step in range(0, 4000, 5):
        with stage("train", step=step):
            for _ in range(5):
                batch = bytearray(b"x") * (8 * MB)
                held.append(bytearray(b"x") * (MB // 5))
                time.sleep(0.004)
