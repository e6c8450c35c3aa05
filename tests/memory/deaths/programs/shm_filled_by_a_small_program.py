"""A program of 2 MB fills /dev/shm to the limit: the supervisor holds more than it, and must live."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# victim = "main"
# limit_mb = 150
# shm_mb = 400
# says = ["it ended by SIGKILL (outcome.json)"]
# command = ["sh", "-c", "sleep 1; exec dd if=/dev/zero of=/dev/shm/cache bs=1M count=300"]
# ///
