"""A worker of multiprocessing.Pool is killed, map() never returns, and somebody ends it by SIGTERM."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# victim = "child"
# limit_mb = 150
# beside = "outside"
# ///

import multiprocessing
import os
import signal
import time

from kit import BESIDE, grow, tell, told


def work(number):
    if number == 2:
        grow(400, seconds=1.5)
    time.sleep(0.5)
    return number


if BESIDE:
    pid = int(told("began"))
    time.sleep(7)
    os.kill(pid, signal.SIGTERM)
else:
    tell("began", str(os.getpid()))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(work, range(4), chunksize=1))
