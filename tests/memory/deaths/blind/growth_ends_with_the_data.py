"""An index grows with each shard, step by step, to more than four fifths of the limit: then the data ends."""

# /// case
# kind = "healthy"
# limit_mb = 170
# ///

from kit import MB, as_a_run, over

from memory import stage

index: list[bytearray] = []


def add(shard: int) -> None:
    with stage("index_shard", step=shard):
        index.append(bytearray(b"x") * MB)


with as_a_run():
    over(6.0, 118, add)
    with stage("write_index"):
        print(f"{len(index)} shards indexed")
