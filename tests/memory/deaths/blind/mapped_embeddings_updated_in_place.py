"""Embeddings mapped with copy-on-write access (numpy's mode "c") get an update on each row."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["private_writes"]
# victim = "main"
# limit_mb = 120
# ///

import mmap

from kit import MB, PAGE, over, token_file

path = token_file(250, "embeddings.npy")
with open(path, "rb") as file:
    rows = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def update(number: int) -> None:
    for at in range(number * MB, (number + 1) * MB, PAGE):
        rows[at] = 1


over(4, 250, update)
