"""memory.high slows the run down long before memory.max kills it."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# victim = "main"
# limit_mb = 130
# high_mb = 126
# needs = ["v2"]
# ///

from kit import grow

grow(400, seconds=8)
