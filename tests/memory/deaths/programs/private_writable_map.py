"""A file is mapped for private writes, and each page written to becomes the process's own."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["private_writes"]
# victim = "main"
# limit_mb = 150
# ///

import mmap

from kit import MB, PAGE, as_a_run, over, token_file

with open(token_file(400), "r+b") as file:
    tokens = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def shift(number: int) -> None:
    for at in range(number * MB, (number + 1) * MB, PAGE):
        tokens[at] = 1


with as_a_run():
    over(5, 400, shift)
