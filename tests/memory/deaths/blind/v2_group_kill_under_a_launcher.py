"""With memory.oom.group a growing loader takes the launcher, the training and the others along."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# limit_mb = 150
# oom_group = true
# needs = ["v2"]
# command = ["sh", "-c", "{python} {program}; status=$?; echo training ended with $status; exit $status"]
# ///

import time

from kit import forked, grow, wait_for


def load(megabytes: int) -> None:
    samples = grow(megabytes, seconds=6.0)
    time.sleep(20)
    del samples


loaders = [forked(lambda size=size: load(size)) for size in (8, 8, 300)]
for loader in loaders:
    if wait_for(loader) != 0:
        raise RuntimeError("a loader died")
