"""A file larger than the limit is written twice; dirty pages, limit hits."""

# /// case
# kind = "healthy"
# limit_mb = 60
# ///

import time

from kit import written_file

for number in range(2):
    written_file(150, f"checkpoint{number}.bin")
    time.sleep(0.5)
