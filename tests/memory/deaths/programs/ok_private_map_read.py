"""A private writable map of a file larger than the limit, of which little is written."""

# /// case
# kind = "healthy"
# limit_mb = 100
# ///

import mmap

from kit import MB, PAGE, over, token_file

with open(token_file(500), "r+b") as file:
    tokens = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def read(number: int) -> None:
    sum(tokens[at] for at in range(number * 10 * MB, (number + 1) * 10 * MB, PAGE))
    tokens[number * 10 * MB] = 1


over(2, 50, read)
