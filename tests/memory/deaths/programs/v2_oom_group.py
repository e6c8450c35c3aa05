"""memory.oom.group: the kernel kills the whole job at once, the supervisor too."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# limit_mb = 150
# oom_group = true
# needs = ["v2"]
# ///

from kit import grow

grow(400, seconds=8)
