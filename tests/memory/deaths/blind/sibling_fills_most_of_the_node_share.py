"""Another job fills most of what both may use together; this one is small and steady and ends well."""

# /// case
# kind = "healthy"
# limit_mb = 200
# parent_limit_mb = 270
# beside = "sibling"
# ///

import sys
import time

from kit import BESIDE, FOLDER, grow

if BESIDE:
    held = grow(150, seconds=2.0)
    (FOLDER / "full").touch()
    time.sleep(60)
    sys.exit()

weights = grow(50, seconds=1.5)
while not (FOLDER / "full").exists():
    time.sleep(0.1)
time.sleep(2.0)
