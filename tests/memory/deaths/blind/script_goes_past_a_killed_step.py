"""A shell script's second command is killed; the script fails at the next one (leaf#20)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "child"
# limit_mb = 140
# command = ["bash", "-c", "\"$0\" \"$1\"; echo converted; cat no_such.json", "{python}", "{program}"]
# ///

from kit import grow

grow(30, seconds=1)
grow(300, seconds=3)
