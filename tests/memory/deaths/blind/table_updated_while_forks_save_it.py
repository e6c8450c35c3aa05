"""A forked child saves a snapshot of arrays that the main process goes on to change."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["copy_on_write"]
# limit_mb = 250
# ///

import time

import numpy
from kit import forked

table = numpy.ones((150, 1 << 17))
time.sleep(0.5)
saver = forked(lambda: time.sleep(20))
for row in range(len(table)):
    table[row] += 1
    time.sleep(0.02)
time.sleep(1)
