"""The user may not start another thread: RLIMIT_NPROC (OpenBLAS pthread_create failed, nnUNet#1343)."""

# /// case
# kind = "death"
# verdict = ["memory_error", "failed"]
# limit_mb = 200
# ///

import os
import resource
import threading
import time

from kit import grow

held = grow(60, seconds=1)
os.setgid(65534)
os.setuid(61234)
resource.setrlimit(resource.RLIMIT_NPROC, (8, 8))
for _number in range(64):
    threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    time.sleep(0.05)
