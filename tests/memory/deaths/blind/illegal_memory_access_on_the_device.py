"""A kernel on the GPU reads beyond an array: the words speak of memory, but none was short."""

# /// case
# kind = "death"
# verdict = ["failed"]
# cause = ["none"]
# limit_mb = 160
# ///

import time

from kit import grow

model = grow(100, seconds=2)
time.sleep(2)
raise RuntimeError(
    "CUDA error: an illegal memory access was encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace "
    "below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
)
