"""An earlier step of the job was killed for memory; the run, a later step, is done."""

# /// case
# kind = "healthy"
# limit_mb = 120
# needs = ["slurm"]
# [slurm]
# script = "srun python3 -c 'x = bytearray(b\"x\") * (600 << 20)'\nsrun {run}"
# ///

from kit import grow

held = grow(40, seconds=2)
