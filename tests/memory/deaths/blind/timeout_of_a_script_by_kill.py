"""`timeout -s KILL 3` ends it."""

# /// case
# kind = "death"
# verdict = ["timeout", "killed_from_outside"]
# limit_mb = 200
# command = ["timeout", "-s", "KILL", "3", "{python}", "{program}"]
# ///

import time

from kit import grow

held = grow(90, seconds=1)
time.sleep(30)
