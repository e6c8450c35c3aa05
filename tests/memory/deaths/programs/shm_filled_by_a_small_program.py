"""A program of 2 MB fills /dev/shm to the limit: the supervisor holds more than it, and must live."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["shmem"]
# victim = "main"
# limit_mb = 150
# shm_mb = 400
# says = ["it ended by SIGKILL (outcome.json)"]
# command = ["sh", "-c", '''
#   for n in 1 2 3 4 5 6 7 8 9 10; do sleep 0.4; head -c 13000000 /dev/zero > /dev/shm/$n; done
#   exec dd if=/dev/zero of=/dev/shm/cache bs=1M count=300
# ''']
# ///
