"""The start script kills a helper of its own, for which bash writes "Killed" into the log of the run."""

# /// case
# kind = "healthy"
# limit_mb = 150
# command = ["bash", "-c", "sleep 60 & sleep 0.5; kill -9 $!; wait $!; exec {python} {program}"]
# ///

import time

from kit import grow

model = grow(60, seconds=2)
time.sleep(1.5)
