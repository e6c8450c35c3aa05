"""A process of an executor is killed while it maps records; the main process raises (datasets#2256)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "workers", "leak"]
# victim = "child"
# limit_mb = 200
# ///

import time
from concurrent.futures import ProcessPoolExecutor


def map_shard(shard: int) -> int:
    rows = []
    for _n in range(220 if shard == 1 else 15):
        rows.append(bytes(1 << 20).replace(b"\0", b"x"))
        time.sleep(0.015)
    return len(rows)


if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(map_shard, range(4))))
