"""A tool for logs prints lines of the kernel, of Slurm, of torch, each from its first letter on."""

# /// case
# kind = "healthy"
# limit_mb = 100
# near_limit = false
# ///

import sys

from kit import over

LINES = (
    "[81234.5678] Memory cgroup out of memory: Killed process 4242 (python3) total-vm:8192kB, anon-rss:45kB",
    "[81234.567890] Out of memory: Killed process 4242 (python3) total-vm:81920000kB, anon-rss:31457280kB",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.",
    "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO TIME LIMIT ***",
    "slurmstepd: error: StepId=77.0 exceeded memory limit (763363328 > 209715200), being killed",
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
)
over(2, 40, lambda number: print(LINES[number % len(LINES)], file=sys.stderr, flush=True))
