"""A library in C++ gets no more address space under `ulimit -v`, and aborts with std::bad_alloc."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# cause = ["rlimit"]
# victim = "main"
# limit_mb = 300
# rlimit_as_mb = 240
# ///

import os
import sys

from kit import grow

try:
    buckets = grow(400, seconds=5)
except MemoryError:
    print(
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        file=sys.stderr,
        flush=True,
    )
    os.abort()
