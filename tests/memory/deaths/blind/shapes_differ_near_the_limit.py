"""An assertion on shapes fails while memory stands close below the limit: a bug, and no lack of memory."""

# /// case
# kind = "death"
# verdict = ["failed"]
# cause = ["none"]
# limit_mb = 220
# ///

import time

import numpy as np

embedding = np.ones((5, 1 << 20, 4), dtype=np.float64)  # 160 MB
time.sleep(1.2)
batch = embedding[0, :1024]
head = np.ones((5, 7))
time.sleep(0.6)
assert batch.shape[1] == head.shape[0], f"head expects {head.shape[0]}, the batch has {batch.shape[1]}"
print(batch @ head)
