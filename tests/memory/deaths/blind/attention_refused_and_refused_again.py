"""Under `ulimit -v` the matrix of attention is refused, after a retry with half of it once more."""

# /// case
# kind = "death"
# verdict = ["memory_error"]
# cause = ["rlimit"]
# limit_mb = 200
# rlimit_as_mb = 1000
# ///

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time

import numpy as np


def attention(length: int) -> np.ndarray:
    return np.zeros((8, length, length), dtype=np.float32)  # 2 GB for 8192


keys = np.ones((8, 8192, 64), dtype=np.float32)
time.sleep(1.2)
try:
    scores = attention(8192)
except MemoryError as error:
    print("once more with a half:", error, flush=True)
    time.sleep(0.5)
    try:
        scores = attention(7200)
    except MemoryError:
        print("that does not fit either", flush=True)
        raise
print(scores.shape, keys.shape)
