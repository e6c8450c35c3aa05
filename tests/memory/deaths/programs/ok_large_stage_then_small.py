"""Loading takes 80% of the limit, training 10%."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import time

from kit import as_a_run, grow

from memory import stage

with as_a_run():
    with stage("open_dataset"):
        held = grow(95, seconds=1)
        del held
    with stage("train", step=1):
        time.sleep(2)
