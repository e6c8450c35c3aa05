"""Two dozen augmentation workers hold a few megabytes each, and together more than the job may."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["workers"]
# victim = "child"
# limit_mb = 200
# ///

import os
import signal
import time
from contextlib import suppress

from kit import MB, forked, over, wait_for


def augment() -> None:
    buffers: list[bytearray] = []
    over(4.0, 12, lambda number: buffers.append(bytearray(b"x") * MB))
    time.sleep(15)


workers = [forked(augment) for _ in range(24)]
print(f"{len(workers)} augmentation workers started", flush=True)
pid, status = os.wait()
for each in workers:
    if each != pid:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGTERM)
        wait_for(each)
raise RuntimeError(f"augmentation worker {pid} exited unexpectedly with {os.waitstatus_to_exitcode(status)}")
