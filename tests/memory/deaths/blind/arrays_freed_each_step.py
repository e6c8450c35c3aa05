"""Each step allocates two thirds of the limit and frees it."""

# /// case
# kind = "healthy"
# cause = ["none"]
# limit_mb = 200
# ///

import time

import numpy

for _ in range(25):
    parts = [numpy.ones(1 << 20) for _ in range(13)]
    time.sleep(0.08)
    del parts
    time.sleep(0.05)
