"""Files are written and removed again and again; the page cache fills the limit (docker/for-linux#653)."""

# /// case
# kind = "healthy"
# cause = ["none", "cache"]
# limit_mb = 110
# ///

import time

from kit import FOLDER, written_file

for part in range(12):
    written_file(30, f"spill_{part}.bin")
    time.sleep(0.1)
    if part > 4:
        (FOLDER / f"spill_{part - 4}.bin").unlink()
