"""A batch that did not fit the device is caught, said, and tried again smaller."""

# /// case
# kind = "healthy"
# limit_mb = 150
# ///

import logging
import time

time.sleep(1)
logging.warning(
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.30 GiB. GPU 0 has a total capacity of "
    "15.77 GiB of which 3.21 GiB is free. Trying again with micro-batch 16"
)
time.sleep(1)
print("done: loss 3.21")
