"""A terabyte of address space is reserved, as CUDA and some allocators do; nothing of it is used."""

# /// case
# kind = "healthy"
# limit_mb = 100
# ///

import mmap
import time

reserved = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
time.sleep(2)
print(len(reserved))
