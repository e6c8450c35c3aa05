"""Three workers walk through a mapped corpus of five times the limit; their resident memory exceeds it."""

# /// case
# kind = "healthy"
# limit_mb = 90
# ///

import mmap

from kit import MB, forked, over, token_file, touch_all, wait_for

SIZE_MB, PARTS = 450, 15
path = token_file(SIZE_MB, "corpus.bin")


def read() -> None:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as corpus:
        part = SIZE_MB * MB // PARTS
        over(2.5, PARTS, lambda n: touch_all(corpus, begin=n * part, end=(n + 1) * part))


workers = [forked(read) for _ in range(3)]
statuses = [wait_for(worker) for worker in workers]
assert statuses == [0, 0, 0], statuses
