"""A ring of frames in files without a name (memfd): its memory is in no process's resident set."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# victim = "main"
# limit_mb = 150
# ///

import os

from kit import MB, grow, over

model = grow(35, seconds=0.5)
frames = []


def receive(_: int) -> None:
    frame = os.memfd_create("frame")
    os.write(frame, b"f" * MB)
    frames.append(frame)


over(4, 200, receive)
