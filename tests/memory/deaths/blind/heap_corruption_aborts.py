"""glibc finds its heap corrupted and aborts."""

# /// case
# kind = "death"
# verdict = ["failed"]
# victim = "main"
# limit_mb = 200
# ///

import ctypes
import time

from kit import grow

held = grow(60, seconds=1.5)
time.sleep(0.3)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
block = libc.malloc(64)
libc.free(ctypes.c_void_p(block))
libc.free(ctypes.c_void_p(block))
