"""The time of the job is over in the middle of an epoch; its page cache fills the limit meanwhile."""

# /// case
# kind = "death"
# verdict = ["timeout"]
# limit_mb = 100
# needs = ["slurm"]
# [slurm]
# options = ["--time=1"]
# ///

import time

from kit import MB, grow, token_file

model = grow(20, seconds=1)
corpus = token_file(300)
begin = time.monotonic()
while time.monotonic() < begin + 240:
    with open(corpus, "rb") as file:
        while file.read(MB):
            time.sleep(0.01)
