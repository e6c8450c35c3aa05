"""The batch script limits the address space by `ulimit -v`, far below what --mem allows."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# cause = ["rlimit"]
# victim = "main"
# limit_mb = 400
# needs = ["slurm"]
# [slurm]
# script = "srun bash -c 'ulimit -v 240000; exec \"$@\"' bash {run}"
# ///

from kit import grow

table = grow(350, seconds=4)
