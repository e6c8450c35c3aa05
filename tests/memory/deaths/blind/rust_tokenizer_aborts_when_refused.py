"""A library in Rust asks for more than `ulimit -v` leaves, prints one line and aborts."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# cause = ["rlimit"]
# limit_mb = 200
# rlimit_as_mb = 1500
# ///

import mmap
import os
import sys

from kit import grow

NEEDED = 3 << 30
merges = grow(60, seconds=2.5)
print("Pre-processing sequences", flush=True)
try:
    table = mmap.mmap(-1, NEEDED)
except OSError:  # as std::alloc::handle_alloc_error does it
    sys.stderr.write(f"memory allocation of {NEEDED} bytes failed\n")
    sys.stderr.flush()
    os.abort()
