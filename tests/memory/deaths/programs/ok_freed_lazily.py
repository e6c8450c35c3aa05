"""Memory is handed back with MADV_FREE: it still counts as anon, and the kernel takes it when it needs it."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import mmap
import time

from kit import MB

pool = mmap.mmap(-1, 120 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 120 * MB, MB):
    pool[at : at + MB] = b"x" * MB
pool.madvise(mmap.MADV_FREE)
time.sleep(1.5)
held = bytearray(b"x") * (60 * MB)
time.sleep(1)
