"""Memory rises by the same amount each step for half of the steps, then no more."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 260
# ///

import time

from kit import MB, as_a_run

from memory import stage

held = []
with as_a_run():
    for step in range(0, 2000, 10):
        with stage("train", step=step):
            if step < 1000:
                held.append(b"x" * MB)
            time.sleep(0.02)
