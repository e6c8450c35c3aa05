"""The last of a pipeline meets a line without an end, and holds all of it; the shell tells of it by 137."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "child"
# limit_mb = 120
# command = ["bash", "-c", "head -c 500000000 /dev/zero | tr '\\0' x | grep -c y"]
# ///
