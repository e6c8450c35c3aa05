"""Shards are concatenated: for a moment all is there twice, close below the limit; two times."""

# /// case
# kind = "healthy"
# limit_mb = 215
# ///

import time

import numpy as np


def load(split: str) -> np.ndarray:
    shards = [np.full(2 << 20, number, dtype=np.float32) for number in range(10)]  # 8 MB each
    time.sleep(0.3)
    whole = np.concatenate(shards)
    time.sleep(0.3)
    print(split, whole.shape, flush=True)
    return whole[:1000].copy()


for split in ("train", "validation"):
    part = load(split)
    time.sleep(0.8)
