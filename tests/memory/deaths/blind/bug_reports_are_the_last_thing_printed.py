"""Samples of a corpus of bug reports are printed at the end: the log ends like that of a dead job."""

# /// case
# kind = "healthy"
# limit_mb = 170
# ///

import sys

from kit import grow

SAMPLES = """\
sample 1 of 3, 211 tokens:
  File "prepare.py", line 40, in <module>
    frame = pd.read_csv(path)
MemoryError
sample 2 of 3, 198 tokens:
slurmstepd: error: Detected 1 oom_kill event in StepId=88123.batch. Some of the step tasks have been \
OOM Killed.
sample 3 of 3, 164 tokens:
slurmstepd: error: *** JOB 88123 ON node07 CANCELLED AT 2024-05-02T08:11:09 DUE TO TIME LIMIT ***
Killed
"""
held = grow(125, seconds=3.0)
sys.stderr.write(SAMPLES)
