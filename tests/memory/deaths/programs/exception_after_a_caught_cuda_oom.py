"""A batch that did not fit is logged with its traceback and tried again; later a bug ends the run."""

# /// case
# kind = "death"
# verdict = ["failed"]
# limit_mb = 150
# says = ["KeyError: 'labels'"]
# ///

import logging
import time


class OutOfMemoryError(RuntimeError):
    """As torch's, which is not needed for its words."""


OutOfMemoryError.__module__ = "torch"
FULL = (
    "CUDA out of memory. Tried to allocate 12.30 GiB. GPU 0 has a total capacity of 15.77 GiB of which "
    "3.21 GiB is free. Of the allocated memory 11.00 GiB is allocated by PyTorch, and 1.10 GiB is reserved"
)
time.sleep(1)
try:
    raise OutOfMemoryError(FULL)
except OutOfMemoryError:
    logging.exception("micro-batch 32 does not fit; 16 from here on")
time.sleep(1)
{"input_ids": [1, 2]}["labels"]
