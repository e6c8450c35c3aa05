"""Random reads of a file far larger than what is left of the limit, while the process itself grows."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["thrash", "growth", "leak"]
# victim = "main"
# limit_mb = 160
# ///

import mmap
import random

from kit import MB, PAGE, over, written_file

with open(written_file(300), "rb") as file:
    tokens = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
held = []


def step(_: int) -> None:
    held.append(bytearray(b"x") * MB)
    for _ in range(8):
        tokens[random.randrange(len(tokens) // PAGE) * PAGE]


over(4, 300, step)
