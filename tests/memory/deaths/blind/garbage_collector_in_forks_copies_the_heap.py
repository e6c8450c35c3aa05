"""Forked workers collect garbage, which writes into each object's head and so copies the parent's heap."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["copy_on_write"]
# limit_mb = 220
# ///

import gc
import os
import time

from kit import forked

samples = [[number] for number in range(650_000)]


def work(delay_s: float) -> None:
    time.sleep(delay_s)
    gc.collect()
    time.sleep(6)


workers = [forked(lambda delay_s=0.8 * number: work(delay_s)) for number in range(6)]
for _ in workers:
    pid, status = os.wait()
    if status:
        raise RuntimeError(f"worker {pid} died: {os.waitstatus_to_exitcode(status)}")
