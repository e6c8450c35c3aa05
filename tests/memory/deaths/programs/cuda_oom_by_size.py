"""torch.OutOfMemoryError, in the words of torch 2.x: the batch is too large for the device."""

# /// case
# kind = "death"
# verdict = ["oom_gpu"]
# limit_mb = 300
# ///

import time

time.sleep(1.2)
raise RuntimeError(
    "CUDA out of memory. Tried to allocate 12.30 GiB. GPU 0 has a total capacity of 15.77 GiB of which "
    "3.21 GiB is free. Including non-PyTorch memory, this process has 12.55 GiB memory in use. Of the "
    "allocated memory 11.92 GiB is allocated by PyTorch, and 211.40 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
    "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
