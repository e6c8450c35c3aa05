"""A leak, but of a run that ended at a tenth of its limit: worth a word, no death."""

# /// case
# kind = "healthy"
# limit_mb = 600
# ///

import time

from kit import MB, as_a_run

from memory import stage

held = []
with as_a_run():
    for step in range(200):
        with stage("train", step=step):
            held.append(bytearray(b"x") * (MB // 4))
            time.sleep(0.01)
