"""Killed at its own limit, while it prints what the kernels of other machines wrote when they ran out."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "main"
# limit_mb = 140
# ///

import sys

from kit import MB, over

KERNELS = (
    "[81234.567890] Out of memory: Killed process 4242 (python3) total-vm:81920000kB, anon-rss:31457280kB",
    "Nov 22 10:00:00 node7 kernel: [  81.2] Out of memory: Killed process 17 (java) total-vm:9kB",
)
held = []


def read(number: int) -> None:
    held.append(bytearray(b"x") * MB)
    sys.stderr.write(KERNELS[number % 2] + "\n")


over(4, 300, read)
