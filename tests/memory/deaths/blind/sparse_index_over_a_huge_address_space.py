"""A hash index looks at one place in each 2 MB of a huge mapping: little but page tables is used."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["page_tables"]
# victim = "main"
# limit_mb = 110
# ///

import mmap

from kit import MB, over

MAP_NORESERVE = 0x4000
SIZE = 96 << 30
index = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
index.madvise(mmap.MADV_NOHUGEPAGE)
PARTS = 400
PART = SIZE // PARTS


def look_up(number: int) -> int:
    return sum(index[at] for at in range(number * PART, (number + 1) * PART, 2 * MB))


over(5, PARTS, look_up)
