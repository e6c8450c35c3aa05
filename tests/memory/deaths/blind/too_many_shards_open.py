"""A loader opens every shard of its data set and meets `ulimit -n`; memory plays no part."""

# /// case
# kind = "death"
# verdict = ["failed"]
# cause = ["none", "rlimit"]
# limit_mb = 160
# command = ["sh", "-c", "ulimit -n 64; exec {python} {program}"]
# ///

from kit import FOLDER, grow, over

vocabulary = grow(60, seconds=1.5)
for number in range(120):
    (FOLDER / f"shard-{number:05d}.bin").write_bytes(b"x" * 1000)
shards = []
over(1.5, 120, lambda number: shards.append((FOLDER / f"shard-{number:05d}.bin").open("rb")))
