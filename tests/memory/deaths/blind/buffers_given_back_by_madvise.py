"""An arena is filled to nine tenths of the limit and given back page by page, as allocators do."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 190
# ///

import mmap
import time

from kit import MB

arena = mmap.mmap(-1, 400 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for _turn in range(3):
    for at in range(140):
        arena[at * MB : (at + 1) * MB] = b"a" * MB
        time.sleep(0.003)
    time.sleep(0.2)
    arena.madvise(mmap.MADV_DONTNEED)
    time.sleep(0.3)
