"""The limit of the job is larger than the memory of its machine, which runs out first."""

# /// case
# kind = "death"
# verdict = ["oom_host"]
# cause = ["growth", "leak"]
# victim = "main"
# limit_mb = 3000
# needs = ["v2"]
# ///

from kit import grow

table = grow(1200, seconds=10)
