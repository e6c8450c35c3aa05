"""Two small tables are joined on a key that repeats: the result has a row for every pair."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 200
# ///

import time

import numpy as np
from kit import as_a_run

from memory import stage

ROWS = 1800
with as_a_run():
    with stage("read_tables"):
        left = {f"left_{n}": np.arange(ROWS, dtype=np.float64) for n in range(8)}
        right = {f"right_{n}": np.arange(ROWS, dtype=np.float64) for n in range(8)}
        time.sleep(1.0)
    with stage("join"):
        joined = {}
        for name, column in left.items():
            joined[name] = np.repeat(column, ROWS)
            time.sleep(0.4)
        for name, column in right.items():
            joined[name] = np.tile(column, ROWS)
            time.sleep(0.4)
    print({name: column.sum() for name, column in joined.items()})
