"""`bash train.sh`: the run is a shell, the kernel kills what it started, the shell exits with 137."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "child"
# limit_mb = 150
# command = ["sh", "-c", "\"$@\"; exit $?", "train.sh", "{python}", "{program}"]
# ///

from kit import grow

grow(400, seconds=5)
