"""Sparse reads of a huge map: no page is the process's own, but the tables that lead to them are."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["page_tables"]
# limit_mb = 120
# ///

import mmap

from kit import MB, over

GB = 1 << 30
huge = mmap.mmap(-1, 300 * GB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
huge.madvise(mmap.MADV_NOHUGEPAGE)


def look(number: int) -> None:
    for at in range(number * GB, (number + 1) * GB, 2 * MB):
        huge[at]


over(5, 300, look)
