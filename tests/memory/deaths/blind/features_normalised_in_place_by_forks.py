"""Four forked workers scale the table that they inherited, in place, and so each makes its own copy."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["copy_on_write"]
# limit_mb = 150
# ///

import sys
import time

from kit import MB, PAGE, forked, wait_for

table = bytearray(b"x") * (50 * MB)


def normalise() -> None:
    for at in range(0, len(table), PAGE):
        table[at] = table[at] // 2
        if at % MB == 0:
            time.sleep(0.06)


time.sleep(1)
workers = [forked(normalise) for _ in range(4)]
ends = [wait_for(pid) for pid in workers]
if any(ends):
    print(f"workers ended with {ends}", file=sys.stderr)
    sys.exit(1)
