"""A job beside this one, under the same parent, is killed for its own memory."""

# /// case
# kind = "healthy"
# limit_mb = 150
# parent_limit_mb = 1000
# beside = "sibling"
# ///

import time

from kit import BESIDE, forked, grow, tell, told, wait_for

if BESIDE:
    told("ready")
    wait_for(forked(lambda: grow(400, seconds=1)))
    tell("killed")
else:
    held = grow(30, seconds=1)
    tell("ready")
    told("killed")
    time.sleep(1)
