"""The second program of a shell pipeline holds all lines to sort them; the shell passes on its 137."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["growth", "leak"]
# victim = "child"
# limit_mb = 120
# command = ["bash", "-c", "set -o pipefail; {python} {program} read | {python} {program} sort | tail -n 1"]
# ///

import sys
import time

if sys.argv[1] == "read":
    for part in range(400):
        sys.stdout.write(f"{part:06d} {'w' * 500_000}\n" * 2)
        time.sleep(0.01)
else:
    lines = list(sys.stdin)
    sys.stdout.writelines(sorted(lines))
