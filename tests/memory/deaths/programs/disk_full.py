"""The disk with the run's folder is full when the kernel kills: the ring, made whole at the start, tells."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# limit_mb = 150
# run_disk_mb = 5
# ///

from contextlib import suppress

from kit import RUN, grow

with suppress(OSError), open(RUN / "metrics.csv", "wb", buffering=0) as file:
    while file.write(b"x" * 4096) == 4096:
        pass
grow(400, seconds=5)
