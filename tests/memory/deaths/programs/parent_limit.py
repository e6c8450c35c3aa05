"""The run's own cgroup has room; the limit that kills stands two levels above it."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 1000
# parent_limit_mb = 150
# says = ["parent"]
# ///

from kit import grow

grow(400, seconds=5)
