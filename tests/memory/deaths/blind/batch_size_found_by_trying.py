"""The largest batch is sought until MemoryError, which is caught."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 700
# rlimit_as_mb = 500
# ///

import time

held, size = None, 32 << 20
while True:
    try:
        held = bytearray(size)
        size *= 2
        time.sleep(0.4)
    except MemoryError:
        print("MemoryError: halving the batch", flush=True)
        held = bytearray(40 << 20)
        break
time.sleep(1)
