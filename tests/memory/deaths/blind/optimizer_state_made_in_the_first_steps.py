"""Each of the first steps makes the optimizer's state for one more layer; from then on memory is flat."""

# /// case
# kind = "healthy"
# limit_mb = 180
# ///

import time

from kit import MB, as_a_run, grow

from memory import stage

with as_a_run():
    model = grow(30, seconds=0.3)
    moments = []
    for step in range(1, 41):
        with stage("train", step=step):
            if step <= 12:
                moments.append(bytearray(b"m") * (5 * MB))
            batch = bytearray(b"b") * MB
            time.sleep(0.1)
