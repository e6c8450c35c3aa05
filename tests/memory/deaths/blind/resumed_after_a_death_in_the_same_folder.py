"""The first attempt was killed for the limit within a stage; the second, in its folder, does well."""

# /// case
# kind = "healthy"
# limit_mb = 130
# before = "killed by the kernel"
# ///

import sys
import time

from kit import RUN, grow

from memory import record_to, stage

FIRST = sys.argv[1:] == ["before"]

with record_to(RUN / "memory.jsonl", attempt=1 if FIRST else 2):
    with stage("load", step=0):
        held = grow(40, seconds=0.5)
    for number in range(1, 9):
        with stage("train", step=number):
            if FIRST and number == 3:
                grow(200, seconds=0.5, held=held)
            time.sleep(0.2)
