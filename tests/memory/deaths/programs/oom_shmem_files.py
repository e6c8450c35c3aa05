"""Files in /dev/shm fill the limit; they are nobody's RSS."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# limit_mb = 150
# shm_mb = 600
# ///

from pathlib import Path

from kit import MB, over

with open("/dev/shm/batches", "wb") as file:
    over(5, 400, lambda _: file.write(b"x" * MB))
print(Path("/dev/shm/batches").stat().st_size)
