"""A mapped file is locked into memory (mlock): page cache that cannot be given back fills the limit."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# victim = "main"
# says = ["could not be given back"]
# limit_mb = 200
# ///

import ctypes
import mmap
import time

from kit import MB, written_file

libc = ctypes.CDLL(None, use_errno=True)
path = written_file(400)
with open(path, "r+b") as file:
    held = mmap.mmap(file.fileno(), 0)
at = ctypes.addressof(ctypes.c_char.from_buffer(held))
for number in range(400):
    if libc.mlock(ctypes.c_void_p(at + number * MB), ctypes.c_size_t(MB)):
        raise SystemExit(f"mlock: {ctypes.get_errno()}")
    time.sleep(0.01)
