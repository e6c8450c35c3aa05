"""The first attempt died near the limit within a stage; the second, which counts as 1 too, does well."""

# /// case
# kind = "healthy"
# limit_mb = 140
# before = "killed by the kernel"
# near_limit = false
# ///

import sys
import time

from kit import RUN, grow

from memory import record_to, stage

FIRST = sys.argv[1:] == ["before"]

with record_to(RUN / "memory.jsonl", attempt=1):
    with stage("load"):
        held = grow(20, seconds=0.3)
    for number in range(1, 6):
        with stage("train", step=number):
            if FIRST:
                grow(24, seconds=0.3, held=held)
            time.sleep(0.2)
