"""Another process of the same job fills it and is killed for it: this run goes on, and must be told of it."""

# /// case
# kind = "healthy"
# near_limit = true
# limit_mb = 200
# beside = "job"
# ///

import time

from kit import BESIDE, grow, tell, told

if BESIDE:
    told("ready")
    held = grow(600, seconds=1)
else:
    held = grow(30, seconds=1)
    tell("ready")
    time.sleep(6)
