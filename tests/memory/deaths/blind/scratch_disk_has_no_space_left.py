"""The scratch disk is full while shards are written: the same words as of a full /dev/shm."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 160
# ///

import time

from kit import MB, grow

buffer = grow(40, seconds=1)
time.sleep(1.5)
for shard in range(3):
    print(f"writing shard {shard}", flush=True)
    try:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"s" * MB)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"/scratch/corpus/shard_{shard:05d}.arrow") from None
