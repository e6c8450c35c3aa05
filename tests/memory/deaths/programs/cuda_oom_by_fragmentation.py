"""The same error, where most of what is reserved holds no tensor."""

# /// case
# kind = "death"
# verdict = ["oom_gpu"]
# cause = ["fragmentation"]
# limit_mb = 300
# ///

import time

time.sleep(1.2)
raise RuntimeError(
    "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 15.77 GiB of which "
    "401.12 MiB is free. Including non-PyTorch memory, this process has 15.37 GiB memory in use. Of the "
    "allocated memory 7.80 GiB is allocated by PyTorch, and 7.10 GiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
