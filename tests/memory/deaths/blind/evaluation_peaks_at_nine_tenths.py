"""Each evaluation holds all its logits and comes close to the limit, then gives them back."""

# /// case
# kind = "healthy"
# limit_mb = 180
# ///

import time

from kit import as_a_run, grow

from memory import stage

with as_a_run():
    model = grow(40, seconds=0.5)
    for epoch in range(1, 4):
        for step in range(5):
            with stage("train", step=epoch * 5 + step):
                time.sleep(0.1)
        with stage("evaluate", step=epoch * 5 + 5):
            logits = grow(75, seconds=0.7)
            time.sleep(0.2)
            logits.clear()
