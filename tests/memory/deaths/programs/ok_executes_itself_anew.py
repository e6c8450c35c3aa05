"""It executes itself twice in mid-run: the same pid, records that begin anew."""

# /// case
# kind = "healthy"
# limit_mb = 200
# ///

import os
import sys
import time

from kit import as_a_run, grow

from memory import stage

turn = int(os.environ.get("TURN", "0"))
with as_a_run():
    with stage("load"):
        held = grow(60 + 40 * (turn == 0), seconds=1)
    with stage("train"):
        if turn < 2:
            os.environ["TURN"] = str(turn + 1)
            os.execv(sys.executable, [sys.executable, *sys.argv])
        time.sleep(1)
