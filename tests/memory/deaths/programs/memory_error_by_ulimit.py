"""`ulimit -v` in a login script: malloc fails while the cgroup has room."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# cause = ["rlimit"]
# limit_mb = 1000
# rlimit_as_mb = 200
# ///

from kit import grow

grow(400, seconds=4)
