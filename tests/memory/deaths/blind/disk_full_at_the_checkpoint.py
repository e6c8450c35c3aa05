"""A checkpoint does not fit on the disk."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 200
# run_disk_mb = 24
# ///

import time

from kit import RUN, grow

weights = grow(50, seconds=1.5)
time.sleep(0.5)
with open(RUN / "checkpoint.pt", "wb") as file:
    for block in weights:
        file.write(block)
        file.flush()
