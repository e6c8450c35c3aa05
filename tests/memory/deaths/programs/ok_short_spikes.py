"""Each second a spike to 90% of the limit, as of an evaluation."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import time

from kit import grow

for _ in range(4):
    spike = grow(115, seconds=0.2)
    del spike
    time.sleep(0.6)
