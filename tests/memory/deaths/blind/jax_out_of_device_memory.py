"""JAX cannot allocate on the device; words as jaxlib raises them."""

# /// case
# kind = "death"
# verdict = ["oom_gpu"]
# limit_mb = 200
# ///

import time

from kit import grow


class XlaRuntimeError(RuntimeError):
    pass


XlaRuntimeError.__module__ = "jaxlib.xla_extension"
held = grow(90, seconds=1.5)
time.sleep(0.3)
raise XlaRuntimeError(
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34360785688 bytes.\nBufferAssignment OOM "
    "Debugging.\nBufferAssignment stats:\n             parameter allocation:    2.00GiB\n"
)
