"""Pipes that nobody reads are filled: the kernel's memory grows, and no process does."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# victim = "main"
# limit_mb = 100
# says = ["the kernel's own memory"]
# ///

import fcntl
import os
import resource

from kit import MB, over

resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held = []


def fill(_: int) -> None:
    read_end, write_end = os.pipe()
    held.append(read_end)
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, MB)
    os.write(write_end, b"x" * MB)


over(4, 150, fill)
