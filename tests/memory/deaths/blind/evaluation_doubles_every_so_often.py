"""Every 20 steps an evaluation takes as much again, and gives it back."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 190
# ///

import time

from kit import as_a_run, grow

from memory import stage

weights = grow(70, seconds=0.5)
with as_a_run():
    for step in range(80):
        with stage("train", step=step):
            time.sleep(0.02)
        if step % 20 == 19:
            with stage("evaluate", step=step):
                outputs = grow(75, seconds=0.3)
                del outputs
