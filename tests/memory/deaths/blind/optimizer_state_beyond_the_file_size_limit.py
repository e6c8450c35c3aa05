"""The state of the optimizer is larger than the files that `ulimit -f` allows, so the save raises."""

# /// case
# kind = "death"
# verdict = ["failed"]
# cause = ["none", "rlimit"]
# limit_mb = 200
# command = ["sh", "-c", "ulimit -f 20480; exec {python} {program}"]
# ///

from kit import FOLDER, grow, over

state = grow(70, seconds=2.0)
with open(FOLDER / "optimizer.bin", "wb", buffering=0) as file:
    over(2.0, 70, lambda number: file.write(state[number]))
