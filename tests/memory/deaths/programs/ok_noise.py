"""A busy allocator: each step something between 10 and 40 MB, no trend."""

# /// case
# kind = "healthy"
# limit_mb = 200
# ///

import random
import time

from kit import MB, as_a_run

from memory import stage

random.seed(1)
with as_a_run():
    for step in range(150):
        with stage("train", step=step):
            held = bytearray()  # else the last one and the next are there at once
            held = bytearray(b"x") * (random.randrange(10, 40) * MB)
            time.sleep(0.005)
