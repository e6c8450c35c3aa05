"""Each validation step keeps its logits on the CPU until the end (transformers#25487)."""

# /// case
# kind = "death"
# verdict = ["oom_cgroup"]
# cause = ["leak", "growth"]
# victim = "main"
# limit_mb = 230
# ///

import time

import numpy
from kit import as_a_run

from memory import stage

logits = []
with as_a_run():
    for step in range(20):
        with stage("train", step=step):
            numpy.ones(1 << 20).sum()
            time.sleep(0.05)
    with stage("evaluate"):
        for _ in range(200):
            logits.append(numpy.ones((256, 2048), dtype=numpy.float32))
            time.sleep(0.03)
