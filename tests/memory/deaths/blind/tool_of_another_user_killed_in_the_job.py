"""A tool that somebody attached to the job is killed for the limit; the run is smaller, and ends well."""

# /// case
# kind = "healthy"
# limit_mb = 150
# beside = "job"
# needs = ["v2"]
# ///

import os
import time
from pathlib import Path

from kit import BESIDE, grow, tell, told

if BESIDE:
    tell("tool", str(os.getpid()))
    told("ready")
    held = grow(300, seconds=6)
else:
    model = grow(25, seconds=1)
    tell("ready")
    status = Path("/proc", told("tool"), "status")
    while status.exists() and "zombie" not in status.read_text():
        time.sleep(0.2)
    time.sleep(2)
