"""The first step cannot reach its database and fails; the script runs it again and all is done."""

# /// case
# kind = "healthy"
# limit_mb = 150
# needs = ["slurm"]
# [slurm]
# script = "srun {run} || { echo retrying in a second >&2; sleep 1; srun {run}; }"
# ///

from kit import FOLDER, grow

marker = FOLDER / "tried"
held = grow(50, seconds=2.0)
if not marker.exists():
    marker.touch()
    raise ConnectionRefusedError(111, "Connection refused: postgresql://features:5432")
print("features written")
