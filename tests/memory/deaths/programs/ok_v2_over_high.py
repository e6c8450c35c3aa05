"""The run stays above memory.high, is slowed down a thousand times, and is done."""

# /// case
# kind = "healthy"
# limit_mb = 200
# high_mb = 70
# needs = ["v2"]
# ///

import time

from kit import written_file

written_file(120)
time.sleep(1)
