"""Each step appends its loss with all that hangs on it to a list, until the kernel ends it."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["leak"]
# victim = "main"
# limit_mb = 160
# ///

import time

from kit import MB, as_a_run, grow

from memory import stage

history = []
with as_a_run():
    model = grow(20, seconds=0.2)
    for step in range(1, 400):
        with stage("train", step=step):
            history.append(bytearray(b"g") * (2 * MB))  # the loss with its graph
            batch = bytearray(b"b") * MB
            time.sleep(0.07)
