"""A slow, even growth of a foreign command that records nothing."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["leak", "growth"]
# victim = "main"
# limit_mb = 100
# ///

from kit import grow

grow(200, seconds=20)
