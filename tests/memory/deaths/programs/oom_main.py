"""The main process grows past the limit."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "main"
# limit_mb = 150
# ///

from kit import grow

grow(400, seconds=6)
