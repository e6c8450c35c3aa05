"""The same error, where another process holds the device."""

# /// case
# kind = "death"
# verdict = ["oom_gpu"]
# cause = ["neighbours"]
# limit_mb = 300
# ///

import time

time.sleep(1.2)
raise RuntimeError(
    "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 15.77 GiB of which "
    "101.12 MiB is free. Process 41172 has 13.90 GiB memory in use. Including non-PyTorch memory, this "
    "process has 1.77 GiB memory in use. Of the allocated memory 1.20 GiB is allocated by PyTorch, and "
    "91.40 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
    "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
    "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
