"""A data set is copied into /dev/shm "for speed": the copies count as memory of the job."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# limit_mb = 140
# shm_mb = 400
# needs = ["v2"]
# ///

import subprocess
import time

from kit import grow, token_file

vocabulary = grow(30, seconds=0.5)
for number in range(8):
    shard = token_file(30, f"shard-{number}.bin")
    print(f"staging {shard.name}", flush=True)
    subprocess.run(["cp", "--sparse=never", str(shard), "/dev/shm"], check=True)
    time.sleep(0.5)
