"""A plain bug at 94% of the limit: near, but nobody was killed."""

# /// case
# kind = "death"
# verdict = ["failed"]
# near_limit = true
# limit_mb = 150
# ///

import time

from kit import grow

held = grow(129, seconds=2)
time.sleep(2)
raise ZeroDivisionError("loss is not finite")
