"""numpy cannot allocate an array under `ulimit -v`."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# cause = ["rlimit"]
# limit_mb = 300
# rlimit_as_mb = 900
# ///

import time

import numpy
from kit import grow

held = grow(40, seconds=1)
time.sleep(0.5)
kernel = numpy.zeros((20_000, 20_000))
