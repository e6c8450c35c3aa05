"""The log goes on from an earlier attempt, which Slurm saw killed, and which ended by a MemoryError."""

# /// case
# kind = "healthy"
# limit_mb = 120
# before = "failed, and said so"
# near_limit = false
# ///

import sys

from kit import grow

if sys.argv[1:] == ["before"]:
    sys.stderr.write(
        "slurmstepd: error: Detected 2 oom_kill events in StepId=12.batch.\n"
        "srun: error: n1: task 0: Out Of Memory\n"
    )
    raise MemoryError("Unable to allocate 8.00 GiB for an array with shape (1073741824,) and data type int64")
held = grow(40, seconds=2)
print("done", file=sys.stderr)
