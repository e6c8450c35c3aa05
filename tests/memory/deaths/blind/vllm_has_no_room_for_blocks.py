"""vLLM finds no device memory for its cache of keys and values."""

# /// case
# kind = "death"
# verdict = ["oom_gpu"]
# limit_mb = 200
# ///

import time

from kit import grow

held = grow(70, seconds=1.5)
print(
    "INFO worker.py: Memory profiling takes 3.52 seconds, the current vLLM instance can use "
    "total_gpu_memory "
    "(23.69GiB) x gpu_memory_utilization (0.90) = 21.32GiB",
    flush=True,
)
time.sleep(0.3)
raise ValueError(
    "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
    "the engine."
)
