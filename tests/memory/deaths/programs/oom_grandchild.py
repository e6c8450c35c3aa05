"""A grandchild is killed; child and main pass the failure on as exit statuses."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth"]
# victim = "child"
# limit_mb = 160
# ///

import os
import sys

from kit import forked, grow, wait_for


def child() -> None:
    if wait_for(forked(lambda: grow(400, seconds=5))) != 0:
        os._exit(3)


sys.exit(wait_for(forked(child)))
