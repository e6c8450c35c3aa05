"""Results go into a dict of multiprocessing.Manager: its server process grows, the main one does not."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "child"
# limit_mb = 140
# ///

import multiprocessing
import time

from kit import MB

if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        results = manager.dict()
        for shard in range(300):
            results[shard] = b"r" * MB
            time.sleep(0.03)
