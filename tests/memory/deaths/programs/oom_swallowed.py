"""A worker is killed, the main process takes no notice and ends with 0."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "child"
# limit_mb = 150
# ///

from kit import forked, grow, wait_for

wait_for(forked(lambda: grow(400, seconds=4)))
