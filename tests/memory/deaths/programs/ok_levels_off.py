"""Grows for two seconds to 70% of the limit, and stays there."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import time

from kit import grow

held = grow(85, seconds=2)
time.sleep(2)
