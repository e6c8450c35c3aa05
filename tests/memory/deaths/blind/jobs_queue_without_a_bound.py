"""The reader puts articles into a queue faster than workers take them (wikiextractor#100)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "main"
# limit_mb = 170
# ///

import multiprocessing
import os
import time


def extract(jobs: "multiprocessing.Queue[bytes]") -> None:
    while True:
        jobs.get()
        time.sleep(0.2)


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    jobs: "multiprocessing.Queue[bytes]" = context.Queue()
    for _ in range(2):
        context.Process(target=extract, args=(jobs,), daemon=True).start()
    for _ in range(5000):
        jobs.put(os.urandom(1 << 18))
        time.sleep(0.005)
