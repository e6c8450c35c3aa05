"""At 94% of the limit from beginning to end, and done."""

# /// case
# kind = "healthy"
# near_limit = true
# limit_mb = 150
# ///

import time

from kit import grow

held = grow(124, seconds=1)
time.sleep(2.5)
