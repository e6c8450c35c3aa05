"""A cache reserves a terabyte of addresses and uses a few megabytes of it."""

# /// case
# kind = "healthy"
# limit_mb = 100
# ///

import mmap

from kit import MB, over

MAP_NORESERVE = 0x4000
arena = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
arena.madvise(mmap.MADV_NOHUGEPAGE)


def use(number: int) -> None:
    arena[number * MB : (number + 1) * MB] = b"k" * MB


over(3, 20, use)
