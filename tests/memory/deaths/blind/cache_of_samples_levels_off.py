"""Samples are cached in memory in the first epoch, up to nine tenths of the limit, then the run is flat."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 170
# ///

import time

from kit import as_a_run

from memory import stage

cache = {}
with as_a_run():
    for step in range(120):
        with stage("train", step=step):
            if len(cache) < 60:
                cache[step] = bytes(2 << 20).replace(b"\0", b"s")
            time.sleep(0.03)
